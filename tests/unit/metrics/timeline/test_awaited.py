"""Where computing waits for communication on a side stream."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.communication.comm_events import CommEvents
from paceline.metrics.timeline.awaited import Awaited, awaited_events
from paceline.metrics.timeline.compute_track import ComputeTrack, compute_track

US = 1_000
LENGTH = 1_000_000


def run_of(ends: list[int], kernels: list[list[tuple[int, int]]], *, main: int | None = None) -> Awaited:
    """Ranks with one event aside each, from 0 to its end, and their kernels, (begin, end); a main event from `main` on; in µs."""
    ranks = len(ends)
    count = ranks if main is None else 2 * ranks
    start, end = np.zeros(count, dtype=np.int64), np.array(ends * (count // ranks)) * US
    start[ranks:], end[ranks:] = (main or 0) * US, (main or 0) * US + 1
    rank, zeros = np.arange(count) % ranks, np.zeros(count, dtype=np.int64)
    events = CommEvents(
        ranks=np.arange(ranks),
        rank=rank,
        step=zeros,
        group_key=np.full(count, "g", dtype=object),
        op=np.full(count, "all_gather", dtype=object),
        start=start,
        end=end,
        bytes=zeros,
        instance=np.arange(count) // ranks,
    )
    tracks = {number: track_of(each) for number, each in enumerate(kernels)}
    return awaited_events(events, np.arange(count) < ranks, zeros, zeros, np.zeros((ranks, 1)), tracks)


def track_of(kernels: list[tuple[int, int]]) -> ComputeTrack:
    times = np.array(kernels, dtype=np.int64) * US
    return compute_track(times[:, 0], times[:, 1])


WAITS = [(0, 50), (51, 100), (205, 300)]
"""The third kernel begins 5 µs after the event ends at 200."""
LATE = [(0, 150), (151, 300), (301, 400)]
"""The same program on a rank that comes later, and waits for nothing."""


def test_the_kernel_that_begins_as_the_event_ends_needs_it_on_every_rank() -> None:
    found = run_of([200, 200, 200, 200], [WAITS, WAITS, WAITS, LATE])
    assert found.row.tolist() == [0, 1, 2, 3]
    assert found.start.tolist() == [205 * US, 205 * US, 205 * US, 301 * US]
    # One µs between kernels, as on the rank that does not wait.
    assert found.ready.tolist() == [101 * US, 101 * US, 101 * US, 301 * US]
    assert found.lag.tolist() == [5 * US] * 4


@pytest.mark.parametrize(
    "other",
    [
        [(0, 50), (51, 100), (120, 300)],  # goes on before the event ends
        [(0, 50), (51, 100)],  # ends before it
    ],
)
def test_nobody_waits_for_what_another_rank_does_without(other: list[tuple[int, int]]) -> None:
    found = run_of([200, 200, 200, 200], [WAITS, WAITS, WAITS, other])
    assert found.row.tolist() == ([] if len(other) == 3 else [0, 1, 2])


def test_two_ranks_prove_nothing() -> None:
    assert not len(run_of([200, 200, 200], [WAITS, WAITS, LATE]).row)


def test_other_kernels_on_other_ranks_are_chance() -> None:
    early = [(0, 50), (205, 300), (301, 310)]
    assert not len(run_of([200] * 6, [WAITS, WAITS, WAITS, early, early, early]).row)


def test_where_everybody_waits_the_gap_is_that_of_other_kernels() -> None:
    found = run_of([200] * 3, [[(0, 40), (43, 60), (63, 100), (205, 300)]] * 3)
    assert found.ready.tolist() == [103 * US] * 3


@pytest.mark.parametrize(("begin", "kernel_waits"), [(200, False), (100, True), (206, True)])
def test_a_collective_that_begins_as_the_event_ends_is_what_waited(begin: int, kernel_waits: bool) -> None:
    found = run_of([200] * 3, [WAITS] * 3, main=begin)
    assert bool(len(found.row)) == kernel_waits
