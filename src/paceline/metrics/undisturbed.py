"""What a rank's own work takes while nothing interrupts it, of recordings of the host: trainings on processors.

A processor that other programs use too stops a rank now and then, for as long as it likes: the self time of a healthy rank on a
busy machine is easily twice that of its peers, for minutes. But it stops it somewhere else in every step. The programs of
all steps are the same row of operators; from the begin of one to the begin of the next is a place of the program, and

    undisturbed(r) = Σ over places of the lower quartile over steps of the time at that place

holds what r does in each step, its sleeps and slow operators too, and next to nothing of what stops it. Places in which a
collective of r or of a peer usually ends are left out: somebody waits there. A rank is slow by itself if its undisturbed time
exceeds its peers' in the first and in the second half of the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.peers import PeerGroups
from paceline.metrics.table import RunTables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LEAST_STEPS = 4
"""Of a half: of fewer, two that were stopped at one place count."""
SAME_PROGRAM = 0.8
"""In this share of the steps a rank must run equally many operators, or it runs no fixed program."""
USUALLY = 0.5
"""A place at which a collective ends in this share of the steps is one where ranks wait."""
_HOST_ONLY = "kineto"
"""The format whose recordings of the host name every operator."""


def records_host_only(run: RunTables) -> bool:
    """Whether operators of the host are recorded, and no rank used a device."""
    run.load(["ranks", "steps"])
    formats = run.sql("SELECT DISTINCT format FROM ranks WHERE format IS NOT NULL").fetchall()
    on_device = run.sql("SELECT 1 FROM steps WHERE preparing IS NOT NULL LIMIT 1").fetchall()
    return formats == [(_HOST_ONLY,)] and not on_device


@dataclass(frozen=True)
class _Program:
    """The places of a rank's step."""

    took: Floats
    """halves × places, ns: the lower quartile over the steps."""
    waits: Bools
    """places: whether a collective usually ends there."""


def trains_on_processors(run: RunTables) -> bool:
    """Whether the host did the work itself: only it was recorded, and its collectives are those of processors."""
    if not records_host_only(run):
        return False
    run.load(["collectives"])
    [(known, ours)] = run.sql(
        "SELECT count(*), count(*) FILTER (starts_with(name, 'gloo:')) FROM collectives"
    ).fetchall()
    return bool(known) and known == ours


def undisturbed_time(run: RunTables, ranks: Sequence[int], groups: PeerGroups, steps: Sequence[int]) -> Floats:
    """ns, ranks × the two halves of the steps; nan where it cannot be told. Groups are rows of `ranks`."""
    run.load(["events", "collectives"])
    halves = (list(steps[: len(steps) // 2]), list(steps[len(steps) // 2 :]))
    result = np.full((len(ranks), len(halves)), np.nan)
    for group in groups:
        programs = {row: found for row in group if (found := _program(run, ranks[row], halves)) is not None}
        same = _most_common([len(program.waits) for program in programs.values()])
        peers = {row: program for row, program in programs.items() if len(program.waits) == same}
        waits = np.any([program.waits for program in peers.values()], axis=0)
        for row, program in peers.items():
            result[row] = program.took[:, ~waits].sum(axis=1)
    return result


def _program(run: RunTables, rank: int, halves: Sequence[Sequence[int]]) -> _Program | None:
    """None where a rank does not run the same operators in nearly all steps."""
    recorded = run.sql(
        'SELECT step, start, "end" FROM steps WHERE rank = $rank AND "end" > start ORDER BY start',
        params={"rank": rank},
    ).fetchall()
    starts, ends = _operators(run, rank), _collective_ends(run, rank)
    places = {step: _places(begin, end, starts, ends) for step, begin, end in recorded}
    known = [[places[step] for step in half if step in places] for half in halves]
    same = _most_common([len(took) for half in known for took, _ in half])
    kept = [[(took, ended) for took, ended in half if len(took) == same] for half in known]
    if min(map(len, kept)) < LEAST_STEPS or sum(map(len, kept)) < SAME_PROGRAM * sum(map(len, known)):
        return None
    ended = np.mean([one for half in kept for _, one in half], axis=0)
    took = np.array([np.quantile([one for one, _ in half], 0.25, axis=0) for half in kept])
    return _Program(took, ended >= USUALLY)


def _operators(run: RunTables, rank: int) -> Ints:
    """When each operator begins on the thread that runs most of them."""
    found = run.sql(
        """
        SELECT start FROM events WHERE rank = $rank AND category = 'cpu_op' AND track = (
            SELECT track FROM events WHERE rank = $rank AND category = 'cpu_op'
            GROUP BY track ORDER BY count(*) DESC, track LIMIT 1
        ) ORDER BY start
        """,
        params={"rank": rank},
    ).fetchnumpy()
    return np.asarray(found["start"], dtype=np.int64)


def _collective_ends(run: RunTables, rank: int) -> Ints:
    found = run.sql(
        'SELECT start + duration AS "end" FROM collectives WHERE rank = $rank AND start + duration IS NOT NULL ORDER BY ALL',
        params={"rank": rank},
    ).fetchnumpy()
    return np.asarray(found["end"], dtype=np.int64)


def _places(begin: int, end: int, starts: Ints, ends: Ints) -> tuple[Ints, Bools]:
    """How long a step was at each place of its program, and whether a collective ended there."""
    first, last = np.searchsorted(starts, [begin, end])
    edges = np.concatenate([[begin], starts[first:last], [end]])
    return np.diff(edges), np.diff(np.searchsorted(ends, edges)) > 0


def _most_common(lengths: Sequence[int]) -> int:
    """0 = none."""
    values, counts = np.unique(lengths, return_counts=True)
    return int(values[np.argmax(counts)]) if len(values) else 0
