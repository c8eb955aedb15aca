"""Which sums of gradients run beside computing, in recordings that know the phases of a step only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.comm_events import CommEvents
from paceline.metrics.timeline.phase_overlap import overlap_by_phases

MS = 1_000_000
STEPS = 4


def events(starts: list[list[list[int]]], durations: list[list[list[int]]], op: str = "all_reduce") -> CommEvents:
    """Sums of one group, ms: ranks × steps × sums."""
    rows = [
        (rank, step, start * MS, (start + took) * MS)
        for rank, steps in enumerate(starts)
        for step, of_step in enumerate(steps)
        for start, took in zip(of_step, durations[rank][step], strict=True)
    ]
    rank, step, start, end = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    count = len(rows)
    return CommEvents(
        ranks=np.arange(len(starts)),
        rank=rank,
        step=step,
        group_key=np.full(count, "world", dtype=object),
        op=np.full(count, op, dtype=object),
        start=start,
        end=end,
        bytes=np.full(count, 1 << 20),
        instance=np.arange(count),
    )


def overlap(found: CommEvents, backward_end: int) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Steps of 100 ms; backward ends so many ms after the begin of a step."""
    shape = (int(found.rank.max()) + 1, STEPS)
    ends = np.broadcast_to((100 * np.arange(STEPS) + backward_end) * MS, shape).astype(np.float64)
    result = overlap_by_phases(found, found.rank, found.step, ends)
    return None if result is None else (result[0] / MS, result[1] / MS)


def steps(*of_step: int) -> list[list[int]]:
    return [[100 * step + start for start in of_step] for step in range(STEPS)]


def test_sums_that_outlast_backward_were_computed_beside() -> None:
    found = events([steps(40, 60), steps(40, 60)], [[[15, 30]] * STEPS] * 2)
    result = overlap(found, backward_end=70)
    assert result is not None
    overlapped, exposed = result
    assert overlapped.tolist() == [[25.0] * STEPS] * 2  # 15 whole, and 10 of 30
    assert exposed.tolist() == [[20.0] * STEPS] * 2


VARYING = [[[5, 5, 5], [11, 9, 5], [6, 12, 5], [14, 8, 5]], [[9, 13, 5], [5, 5, 5], [12, 6, 5], [7, 10, 5]]]
"""ms that two ranks spend in three sums, as others are late now and then."""


def test_sums_that_begin_at_a_steady_pace_were_computed_beside_however_long_they_wait() -> None:
    result = overlap(events([steps(20, 40, 60), steps(20, 40, 60)], VARYING), backward_end=60)
    assert result is not None
    assert result[0].tolist() == [[10.0, 20.0, 18.0, 22.0], [22.0, 10.0, 18.0, 17.0]]
    assert result[1].tolist() == [[5.0] * STEPS] * 2  # what runs after backward


def test_sums_that_queue_on_some_ranks_were_computed_beside() -> None:
    slow, waiting = steps(30, 50, 70), steps(20, 45, 65)
    found = events([slow, waiting], [[[15, 15, 5]] * STEPS, [[25, 20, 10]] * STEPS])
    result = overlap(found, backward_end=70)
    assert result is not None
    assert result[1].tolist() == [[5.0] * STEPS, [5.0] * STEPS]


def test_sums_that_are_waited_for_delay_the_next_one() -> None:
    """The gap behind a sum is steady, so what follows waited for it: nothing ran beside."""
    starts = [
        [
            [100 * step + at for at in (20, 30 + first, 40 + first + second)]
            for step, (first, second, _) in enumerate(of)
        ]
        for of in VARYING
    ]
    assert overlap(events(starts, VARYING), backward_end=99) is None


def test_pipelines_wait_inside_their_phases() -> None:
    found = events([steps(40, 60), steps(40, 60)], [[[15, 30]] * STEPS] * 2, op="receive")
    assert overlap(found, backward_end=70) is None


def test_steps_without_phases_stay_unknown() -> None:
    found = events([steps(40, 60), steps(40, 60)], [[[15, 30]] * STEPS] * 2)
    ends = np.full((2, STEPS), np.nan)
    ends[0] = (100 * np.arange(STEPS) + 70) * MS
    result = overlap_by_phases(found, found.rank, found.step, ends)
    assert result is not None
    assert np.isnan(result[1][1]).all()
    assert result[1][0].tolist() == [20.0 * MS] * STEPS
