"""A first look: how each rank spent its steps, and which ranks need more self time than their peers.

Torch traces are read for this without a store, any other source through its Run; the numbers are the same, and the same as
in the diagnosis, the report and the pages (metrics/steps.py, self_time.py, peers.py):

    step = compute + overlapped + communication + tail + free + data + unknown              ms, mean over the steps that count
    communication = exposed + waiting: without the other ranks' traces the two cannot be told apart

Why a rank is slow, and what fixing it gains: `paceline diagnose`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paceline.formats.base import RankRecording
from paceline.formats.file_selection import needed_for_diagnosis
from paceline.formats.kineto.groups import has_stages
from paceline.formats.kineto.metadata import read_trace_head
from paceline.formats.kineto.quick_steps import UnsupportedTrace, quick_steps
from paceline.metrics.communication.comm_events import PEER_TO_PEER
from paceline.metrics.peers import Excess, excess_over_peers, peer_groups, program
from paceline.metrics.steps import COLUMNS, StepRows, mean_by, recorded_whole, steady_steps, step_parts
from paceline.run.source_recordings import open_tree
from paceline.storage.fetch_source import fetch_source
from paceline.storage.url import is_remote

if TYPE_CHECKING:
    from paceline.run.ingest import OnReadProgress
    from paceline.run.run import Run

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS = ("compute", "overlapped", "communication", "tail", "free", "data", "unknown")
"""Add up to the step."""
MS = 1e6
"""ns"""


@dataclass(frozen=True)
class SlowRank:
    rank: int
    excess: float
    """Share: 0.27 is 27 % slower than its peers."""
    self_time: float
    """ms per step."""
    reference: float
    """What healthy peers need, ms per step."""


@dataclass(frozen=True)
class Breakdown:
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    """How many each rank recorded of those that count."""
    parts: Mapping[str, tuple[float, ...]]
    """"step" and PARTS, ms per step, per rank."""
    self_time: tuple[float, ...]
    """ms per step, per rank; so are the next two."""
    reference: tuple[float, ...]
    excess: tuple[float, ...]
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
    progress: OnReadProgress | None = None,
) -> Breakdown:
    """Look at any source; arguments as for `paceline.open`, for sources that need a store."""
    quick = None if is_remote(source) or store or engine else _quick(fetch_source(source, needed_for_diagnosis))
    if quick:
        return quick
    from paceline.run.open_run import open_run  # which loads DuckDB

    with open_run(source, store=store, workers=workers, engine=engine, progress=progress) as run:
        return _of_run(run)


def _of_run(run: Run) -> Breakdown:
    from paceline.metrics.rank_performance import rank_performance  # which loads DuckDB

    performance = rank_performance(run)
    means = performance.rank_means.numbers
    parts = {name: means[name] for name in PARTS if name != "communication"}
    parts["communication"] = means["exposed"] + means["waiting"]
    row = np.searchsorted(performance.ranks, means["rank"].astype(np.int64))
    return _breakdown(
        ranks=means["rank"].astype(np.int64),
        steps=means["steps"].astype(np.int64),
        parts={"step": means["duration"]} | {name: parts[name] for name in PARTS},
        excess=performance.excess,
        rows=row,
        warnings=tuple(str(warning) for warning in run.warnings),
    )


def _breakdown(
    *,
    ranks: Ints,
    steps: Ints,
    parts: Mapping[str, Floats],
    excess: Excess,
    rows: Ints,
    warnings: tuple[str, ...],
) -> Breakdown:
    """`rows` are the rows of `ranks` in the excess; parts are ms."""
    self_time, reference = excess.median_value[rows] / MS, excess.median_reference[rows] / MS
    of_rank = {int(row): place for place, row in enumerate(rows)}
    slow = [of_rank[row] for row in excess.persistent() if row in of_rank]
    per_rank = excess.per_rank[rows]
    return Breakdown(
        ranks=tuple(ranks.tolist()),
        steps=tuple(steps.tolist()),
        parts={name: tuple(column.tolist()) for name, column in parts.items()},
        self_time=tuple(self_time.tolist()),
        reference=tuple(reference.tolist()),
        excess=tuple(per_rank.tolist()),
        compared=sum(len(group) for group in excess.groups if len(group) > 1),
        slow=tuple(
            SlowRank(int(ranks[at]), float(per_rank[at]), float(self_time[at]), float(reference[at])) for at in slow
        ),
        warnings=warnings,
    )


# -- torch traces, without a store --------------------------------------------------------------------------------------


def _quick(source: Path) -> Breakdown | None:
    """None: something that only the readers of a Run understand."""
    _, parts = open_tree(source)
    ranks = [part.rank for part in parts]
    if not parts or len(set(ranks)) < len(ranks) or any(part.format != "kineto" for part in parts):
        return None
    try:
        return _of_traces({rank: part for rank, part in zip(ranks, parts, strict=True) if rank is not None})
    except UnsupportedTrace:
        return None


def _of_traces(parts: Mapping[int, RankRecording]) -> Breakdown:
    columns: dict[str, list[NDArray[Any]]] = defaultdict(list)
    programs: list[Hashable] = []
    talks = False
    for rank in sorted(parts):
        [file] = parts[rank].sections[0].files
        head = read_trace_head(file)
        if has_stages(head.groups):
            raise UnsupportedTrace("stages are worked out from all ranks' groups")
        trace = quick_steps(file.path, head.base)
        talks |= not trace.program.keys().isdisjoint(PEER_TO_PEER)
        count = len(trace.columns["step"])
        columns["rank"].append(np.full(count, rank))
        columns["step"].append(trace.columns["step"])
        for name in COLUMNS:
            known = trace.columns.get(name)
            columns[name].append(np.full(count, np.nan) if known is None else known.astype(np.float64))
        programs.append(program(trace.program, count))
    joined = {name: np.concatenate(pieces) for name, pieces in columns.items()}
    warnings = tuple(f"rank {rank}: {note}" for rank in sorted(parts) for note in parts[rank].notes)
    found = _of_rows(StepRows(**joined), programs, warnings)
    if found.slow and talks:
        # Messages may be an all-to-all, or those of a pipeline: then a Run tells the stages, and who may be compared.
        raise UnsupportedTrace("stages are worked out from all ranks' messages")
    return found


def _of_rows(rows: StepRows, programs: list[Hashable], warnings: tuple[str, ...]) -> Breakdown:
    steps = steady_steps(rows.step, recorded_whole(rows))
    steady = np.isin(rows.step, steps)
    split = step_parts(rows)
    split["communication"] = split["exposed"] + split["waiting"]
    shown = {"step": rows.duration} | {name: split[name] for name in PARTS}
    ranks, means = mean_by(rows.rank[steady], {name: column[steady] / MS for name, column in shown.items()})
    every = np.unique(rows.rank)
    self_time = np.full((len(every), len(steps)), np.nan)
    place = np.searchsorted(every, rows.rank[steady]), np.searchsorted(steps, rows.step[steady])
    self_time[place] = (rows.duration - rows.exposed)[steady]
    excess = excess_over_peers(self_time, peer_groups([-1] * len(every), programs))
    return _breakdown(
        ranks=ranks,
        steps=np.unique(rows.rank[steady], return_counts=True)[1],
        parts=means,
        excess=excess,
        rows=np.searchsorted(every, ranks),
        warnings=warnings,
    )
