"""A first look: how each rank spent its steps, and who needs more time for itself than its peers.

Torch traces are read for this without a store, any other source through its Run; the numbers are the same.

    step       = compute + overlapped + exposed + free                             ms, mean over the rank's steps
    own        = step - exposed: what a rank spends on itself, as it does not wait in hidden communication
    slower     = own / (own of its healthy peers) - 1, judged as analysis/peers.py does

Peers run the same program: the same stage, the same kinds and numbers of collectives a step. Waiting that a rank does
inside the communication is nobody's own time here; `paceline diagnose` looks closer, and says why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paceline.analysis.peers import excess_over_peers, nan_median
from paceline.formats.detect import find_parts
from paceline.formats.kineto_groups import has_stages
from paceline.formats.kineto_head import read_trace_head
from paceline.formats.kineto_quick import Unusual, quick_steps
from paceline.formats.reader import Part
from paceline.storage.localize import localize
from paceline.storage.location import is_remote
from paceline.storage.tree import walk

if TYPE_CHECKING:
    from paceline.run.index import Progress
    from paceline.run.run import Run

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS = ("compute", "overlapped", "exposed", "free")
"""Add up to the step."""


@dataclass(frozen=True)
class SlowRank:
    rank: int
    slower: float
    """Share: 0.27 is 27 % slower."""
    own: float
    """ms a step."""
    peers: float
    """What healthy peers need, ms a step."""


@dataclass(frozen=True)
class Breakdown:
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    """How many each rank recorded."""
    parts: Mapping[str, tuple[float, ...]]
    """"step" and PARTS, ms a step, per rank."""
    compared: int
    """Ranks that have peers."""
    slow: tuple[SlowRank, ...]
    """Worst first."""
    warnings: tuple[str, ...]


def breakdown(
    source: str | Path,
    *,
    store: str | Path | None = None,
    workers: int = 1,
    engine: str | None = None,
    progress: Progress | None = None,
) -> Breakdown:
    """Look at any source; arguments as for `paceline.open`, for sources that need a store."""
    quick = None if is_remote(source) or store or engine else _quick(localize(source))
    if quick:
        return _judged(quick)
    from paceline.run.opening import open_run  # which loads DuckDB

    with open_run(source, store=store, workers=workers, engine=engine, progress=progress) as run:
        return _judged(_of_run(run))


@dataclass(frozen=True)
class _Rows:
    """Columns of `steps`, ns, nan where unknown; and what tells peers apart."""

    rank: Ints
    step: Ints
    duration: Floats
    computing: Floats
    overlapped: Floats
    exposed: Floats
    kinds: Mapping[int, Hashable]
    """Per rank: equal where the program is."""
    warnings: tuple[str, ...]


def _quick(source: Path) -> _Rows | None:
    """None: something that only the whole road understands."""
    parts = list(find_parts(walk(source)))
    ranks = [part.rank for part in parts]
    if not parts or len(set(ranks)) < len(ranks) or any(part.format != "kineto" for part in parts):
        return None
    try:
        return _of_traces({rank: part for rank, part in zip(ranks, parts, strict=True) if rank is not None})
    except Unusual:
        return None


def _of_traces(parts: Mapping[int, Part]) -> _Rows:
    columns: dict[str, list[Ints]] = defaultdict(list)
    kinds: dict[int, Hashable] = {}
    for rank in sorted(parts):
        [file] = parts[rank].sections[0].files
        head = read_trace_head(file)
        if has_stages(head.groups):
            raise Unusual("stages are worked out from all ranks' groups")
        found = quick_steps(file.path, head.base)
        count = len(found.columns["step"])
        columns["rank"].append(np.full(count, rank))
        for name in ("step", "duration", "computing", "overlapped", "exposed"):
            columns[name].append(found.columns[name])
        kinds[rank] = _program(found.program, count)
    joined = {name: np.concatenate(pieces) for name, pieces in columns.items()}
    numbers = {name: joined[name].astype(np.float64) for name in ("duration", "computing", "overlapped", "exposed")}
    warnings = tuple(f"rank {rank}: {note}" for rank in sorted(parts) for note in parts[rank].notes)
    return _Rows(joined["rank"], joined["step"], **numbers, kinds=kinds, warnings=warnings)


def _of_run(run: Run) -> _Rows:
    run.load(["ranks", "steps", "collectives"])
    found = run.sql(
        """
        SELECT rank, step, duration, coalesce(computing, forward_backward) AS computing,
               coalesce(overlapped, 0) AS overlapped, exposed
        FROM steps WHERE rank IS NOT NULL AND step IS NOT NULL AND duration IS NOT NULL ORDER BY rank, step
        """
    ).fetchnumpy()
    stages = dict(run.sql("SELECT rank, stage FROM ranks").fetchall())
    ops: dict[int, dict[str, int]] = defaultdict(dict)
    for rank, op, count in run.sql("SELECT rank, op, count(*) FROM collectives GROUP BY ALL").fetchall():
        ops[rank][op] = count
    ranks, counts = np.unique(found["rank"], return_counts=True)
    kinds = {
        rank: (stages.get(rank), _program(ops[rank], count))
        for rank, count in zip(ranks.tolist(), counts.tolist(), strict=True)
    }
    numbers = {name: _plain(found[name]) for name in ("duration", "computing", "overlapped", "exposed")}
    warnings = tuple(str(warning) for warning in run.warnings)
    return _Rows(found["rank"], found["step"], **numbers, kinds=kinds, warnings=warnings)


def _program(collectives: Mapping[str, int], steps: int) -> Hashable:
    return tuple(sorted((op, round(count / max(1, steps))) for op, count in collectives.items()))


def _plain(column: NDArray[np.generic]) -> Floats:
    return np.ma.filled(np.ma.asarray(column, dtype=np.float64), np.nan)


def _judged(rows: _Rows) -> Breakdown:
    ranks, place = np.unique(rows.rank, return_inverse=True)
    exposed, computing = np.nan_to_num(rows.exposed), np.nan_to_num(rows.computing)
    split = {
        "step": rows.duration,
        "compute": np.maximum(computing - rows.overlapped, 0),
        "overlapped": np.minimum(rows.overlapped, computing),
        "exposed": exposed,
        "free": np.maximum(rows.duration - computing - exposed, 0),
    }
    counts = np.bincount(place, minlength=len(ranks))
    parts = {name: _means(place, values, counts) for name, values in split.items()}
    peers = _peers(rows, ranks)
    compared = sum(len(places) for places in peers if len(places) > 1)
    slow = _slow(rows, ranks, place, peers)
    return Breakdown(tuple(ranks.tolist()), tuple(counts.tolist()), parts, compared, slow, rows.warnings)


def _means(place: Ints, values: Floats, counts: Ints) -> tuple[float, ...]:
    return tuple((np.bincount(place, weights=values, minlength=len(counts)) / counts / 1e6).tolist())


def _peers(rows: _Rows, ranks: Ints) -> tuple[tuple[int, ...], ...]:
    """Places of ranks that run the same program."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for at, rank in enumerate(ranks.tolist()):
        alike[rows.kinds[rank]].append(at)
    return tuple(tuple(places) for places in alike.values())


def _slow(rows: _Rows, ranks: Ints, place: Ints, peers: tuple[tuple[int, ...], ...]) -> tuple[SlowRank, ...]:
    # Who does not record what it waits tells at least what it computes.
    own = np.where(np.isnan(rows.exposed), rows.computing, rows.duration - rows.exposed)
    steps, column = np.unique(rows.step, return_inverse=True)
    matrix = np.full((len(ranks), len(steps)), np.nan)
    matrix[place, column] = own
    excess = excess_over_peers(matrix, peers)
    usual, needs, reference = excess.usual, nan_median(matrix) / 1e6, nan_median(excess.reference) / 1e6
    return tuple(
        SlowRank(int(ranks[at]), float(usual[at]), float(needs[at]), float(reference[at])) for at in excess.habitual()
    )
