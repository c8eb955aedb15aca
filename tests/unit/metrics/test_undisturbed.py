"""The time a rank takes while nothing stops it: small programs on a machine that stops ranks, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paceline.metrics.rank_performance import rank_performance
from paceline.metrics.undisturbed import records_host_only, trains_on_processors, undisturbed_time
from support.fake_run import FakeRun

MS = 1_000_000
STEPS, STEP_MS = 12, 1000
PLACES = [10, 20, 30]
"""ms of each place of the program: from the step's begin to the first operator, and so on; then the rank waits."""

Row = dict[str, Any]
Stops = dict[tuple[int, int], int]
"""By step and place: for how many ms the machine stops the rank there."""


def recorded(*ranks: tuple[list[int], Stops], preparing: int | None = None, extra: int = 0, name: str = "x") -> FakeRun:
    """Ranks that meet at the end of each step; `extra` operators more in every second step of rank 0."""
    steps: list[Row] = []
    events: list[Row] = []
    collectives: list[Row] = []
    for step in range(STEPS):
        begin = step * STEP_MS * MS
        lasts = [[took + stops.get((step, place), 0) for place, took in enumerate(places)] for places, stops in ranks]
        end = begin + max(map(sum, lasts)) * MS + 5 * MS
        for rank, times in enumerate(lasts):
            at = begin
            starts = [at := at + time * MS for time in times]
            more = [starts[-1]] * (extra if rank == 0 and step % 2 else 0)
            events += [
                {"rank": rank, "track": "main", "category": "cpu_op", "name": "op", "start": start, "duration": 1}
                for start in starts + more
            ]
            events.append({"rank": rank, "track": "other", "category": "cpu_op", "start": begin + 7, "duration": 1})
            collectives.append(
                {
                    "rank": rank,
                    "step": step,
                    "op": "all_reduce",
                    "name": name,
                    "group": "world",
                    "start": at,
                    "duration": end - at,
                }
            )
            exposed = end - at
            steps.append(
                {"rank": rank, "step": step, "start": begin, "end": end + MS, "duration": end + MS - begin}
                | {"exposed": exposed, "preparing": preparing}
            )
    numbers = range(len(ranks))
    return FakeRun(
        ranks=[{"rank": rank, "format": "kineto"} for rank in numbers],
        groups=[{"group": "world", "rank": rank, "index": rank, "source": "declared"} for rank in numbers],
        steps=steps,
        events=events,
        collectives=collectives,
    )


def stopped(places: range, ms: int = 60) -> Stops:
    """Stopped once per step, each time somewhere else."""
    return {(step, places[step % len(places)]): ms for step in range(STEPS)}


HEALTHY = (PLACES * 4, dict[tuple[int, int], int]())
HELD_UP = (PLACES * 4, stopped(range(12)))
SLOW_BY_HALF = ([3 * time // 2 for time in PLACES] * 4, dict[tuple[int, int], int]())


def times(run: FakeRun) -> list[list[float]]:
    ranks = list(range(len(run.sql("SELECT rank FROM ranks").fetchall())))
    return (undisturbed_time(run, ranks, (tuple(ranks),), list(range(STEPS))) / MS).round(3).tolist()


def test_stops_at_other_places_in_every_step_do_not_count() -> None:
    assert times(recorded(HEALTHY, HELD_UP)) == [[240, 240], [240, 240]]


def test_what_is_slow_in_every_step_counts() -> None:
    assert times(recorded(HEALTHY, SLOW_BY_HALF)) == [[240, 240], [360, 360]]


def test_waiting_does_not_count() -> None:
    """The place at which the collective ends is the last, of both ranks."""
    assert times(recorded((PLACES, {}), ([10, 20, 90], {}))) == [[60, 60], [120, 120]]


def test_ranks_without_a_fixed_program_have_none() -> None:
    assert np.isnan(times(recorded(HEALTHY, HEALTHY, extra=1))[0]).all()


@pytest.mark.parametrize(("preparing", "host_only"), [(None, True), (1, False)])
def test_only_recordings_of_the_host_alone(preparing: int | None, host_only: bool) -> None:
    assert records_host_only(recorded(HEALTHY, HEALTHY, preparing=preparing)) is host_only


def test_a_rank_slowed_by_half_is_slow_in_few_steps_that_others_disturb() -> None:
    run = recorded((PLACES * 4, stopped(range(0, 12, 3), 150)), (SLOW_BY_HALF[0], stopped(range(12), 140)))
    excess = rank_performance(run).excess
    assert excess.persistent() == [1] and excess.doubt([1]) == 0


def test_a_rank_that_is_stopped_in_all_steps_is_not_slow_by_itself() -> None:
    held_up = {(step, step % 12): 60 + 90 * (step % 3) for step in range(STEPS)}
    excess = rank_performance(recorded(HEALTHY, (PLACES * 4, held_up))).excess
    assert excess.per_rank[1] > 0.2 and excess.undisturbed is not None
    assert excess.undisturbed == pytest.approx([0, 0]) and excess.persistent() == []
    assert replace(excess, undisturbed=None).persistent() == [1]


def test_few_steps_tell_nothing() -> None:
    run = recorded(HEALTHY, SLOW_BY_HALF)
    assert np.isnan(undisturbed_time(run, [0, 1], ((0, 1),), list(range(7)))).all()
    assert not np.isnan(undisturbed_time(run, [0, 1], ((0, 1),), list(range(8)))).any()


@pytest.mark.parametrize(("name", "processors"), [("gloo:all_reduce", True), ("nccl:all_reduce", False)])
def test_processors_train_where_their_collectives_run(name: str, processors: bool) -> None:
    run = recorded(HEALTHY, HEALTHY, name=name)
    assert trains_on_processors(run) is processors
