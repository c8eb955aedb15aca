"""Begin and end of steps, and what computing covers, where no tool recorded it; worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.metrics.timeline.step_bounds import StepBounds
from support.comm_tables import Event, comm_events
from support.fake_run import FakeRun

NAN = np.nan


def step(number: int | None, rank: int = 0, **recorded: int | None) -> dict[str, Any]:
    return {"rank": rank, "step": number, **recorded}


def bounds(
    *events: Event,
    steps: list[dict[str, Any]] | None = None,
    kernels: list[dict[str, Any]] | None = None,
    chosen: tuple[int, ...] | None = None,
) -> StepBounds:
    return StepBounds(FakeRun(steps=steps or [], kernels=kernels or []), comm_events(*events), chosen)


def kernel(start: int | None, end: int, rank: int = 0, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "start": start, "duration": end - (start or 0), "core": "AI_CORE", **more}


def same(found: np.ndarray, expected: list[Any]) -> bool:
    return found.shape == np.array(expected).shape and np.allclose(
        found, np.array(expected, dtype=float), equal_nan=True
    )


# -- what was recorded ---------------------------------------------------------------------------------------------------


def test_ranks_are_those_of_steps_and_events_and_values_stand_where_they_belong() -> None:
    found = bounds(
        Event(5, 10, 20, step=7),
        steps=[
            step(7, 2, start=0, end=40, duration=40, overlapped=3, exposed=4, data_wait=1, preparing=9),
            step(9, 2, start=50, end=90, duration=40, preparing=9),
            step(None, 2, start=0, end=500),
        ],
    )
    assert found.ranks.tolist() == [2, 5] and found.steps.tolist() == [7, 9]
    assert same(found.start, [[0, 50], [10, NAN]]) and same(found.end, [[40, 90], [20, NAN]])
    assert same(found.duration, [[40, 40], [NAN, NAN]]) and same(found.head, [[1, 9], [NAN, NAN]])
    assert same(found.overlapped, [[3, NAN], [NAN, NAN]]) and same(found.exposed, [[4, NAN], [NAN, NAN]])
    assert found.split_known


def test_a_rank_whose_steps_are_only_named_is_left_out() -> None:
    found = bounds(Event(0, 10, 20, step=7), steps=[step(7, 0, duration=40), step(7, 1), step(9, 0, duration=40)])
    assert found.ranks.tolist() == [0]
    assert found.steps.tolist() == [7, 9]


def test_steps_not_chosen_are_left_out_and_events_outside_of_steps_have_no_place() -> None:
    rows = [step(number, start=100 * number, end=100 * number + 90) for number in (1, 2, 3)]
    events = [Event(0, 100 * number, 100 * number + 5, number, step=number) for number in (0, 1, 2, 4)]
    found = bounds(*events, steps=rows, chosen=(2, 3))
    assert found.steps.tolist() == [2, 3] and same(found.first, [[200, np.inf]])
    assert found.places(comm_events(*events))[2].tolist() == [False, False, True, False]
    assert bounds(*events, steps=rows, chosen=()).steps.tolist() == [0, 1, 2, 4]


def test_without_steps_the_events_tell_when_they_began_and_ended() -> None:
    found = bounds(Event(0, 10, 30, 0), Event(0, 20, 25, 1), Event(1, 5, 9, 2, step=3))
    assert found.steps.tolist() == [0, 3]
    assert same(found.start, [[10, NAN], [NAN, 5]]) and same(found.end, [[30, NAN], [NAN, 9]])
    assert not found.split_known


# -- steps of which only the duration is known ---------------------------------------------------------------------------

TWO_STEPS = [Event(0, 30, 60, 0), Event(0, 150, 190, 1, step=1)]


def test_steps_slide_so_that_their_events_lie_inside_and_five_percent_of_the_room_behind() -> None:
    found = bounds(*TWO_STEPS, steps=[step(0, duration=100), step(1, duration=100)])
    # The first may begin between 190 - 200 = -10 and 30.
    assert same(found.start, [[-8, 92]]) and same(found.end, [[92, 192]])


def test_nothing_is_communicated_before_the_first_device_work() -> None:
    found = bounds(*TWO_STEPS, steps=[step(0, duration=100, preparing=20), step(1, duration=100)])
    assert same(found.start, [[-9, 91]])  # between -10 and 10


def test_steps_too_short_for_their_events_begin_with_the_first() -> None:
    found = bounds(Event(0, 30, 150), steps=[step(0, duration=100)])
    assert same(found.start, [[30]]) and same(found.end, [[130]])


def test_steps_without_events_or_duration_do_not_decide() -> None:
    rows = [step(0, duration=100), step(1, duration=50), step(2), step(3, duration=100)]
    events = [Event(0, 30, 60, 0), Event(0, 165, 170, 1, step=2), Event(0, 190, 230, 2, step=3)]
    found = bounds(*events, steps=rows)
    # Before step 3 lie 150: begin between 230 - 250 = -20 and 30 (step 3 alone: 40).
    assert same(found.start, [[-17.5, 82.5, 165, 132.5]]) and same(found.end, [[82.5, 132.5, 170, 232.5]])


def test_a_step_with_a_start_keeps_it() -> None:
    found = bounds(*TWO_STEPS, steps=[step(0, start=5, end=105, duration=100), step(1, duration=100)])
    assert same(found.start, [[5, 92]]) and same(found.end, [[105, 192]])
    untouched = bounds(*TWO_STEPS, steps=[step(0, start=5, end=105, duration=100), step(1, start=110, end=215)])
    assert same(untouched.start, [[5, 110]]) and same(untouched.end, [[105, 215]])


def test_durations_without_events_have_no_begin() -> None:
    found = bounds(Event(1, 0, 9), steps=[step(0, 0, duration=100), step(0, 1, start=0, end=50)])
    assert same(found.start, [[NAN], [0]])


def test_level_0_steps_that_say_how_they_divide_follow_each_other_from_zero() -> None:
    steps = [step(0, 0, duration=100, exposed=40), step(1, 0, duration=50, exposed=0), step(2, 0, duration=9)]
    found = bounds(Event(1, 0, 9), steps=steps)
    assert same(found.start[:1], [[0, 100, NAN]])
    assert same(found.end[:1], [[100, 150, NAN]])


# -- computing during communication --------------------------------------------------------------------------------------

KERNELS = [kernel(10, 30), kernel(50, 80)]


@pytest.mark.parametrize(
    ("spans", "overlapped", "exposed"),
    [
        ([(20, 60)], 20, 20),  # computing from 20 to 30 and from 50 to 60
        ([(0, 10)], 0, 10),
        ([(80, 95)], 0, 15),
        ([(55, 75)], 20, 0),
        ([(20, 60), (40, 70)], 40, 20),  # of the second, what comes after 60 is covered
        ([(20, 60), (25, 45), (55, 90)], 20 + 5 + 25, 20 + 0 + 10),
    ],
)
def test_kernels_tell_how_much_communication_is_covered(
    spans: list[tuple[int, int]], overlapped: int, exposed: int
) -> None:
    found = bounds(*(Event(0, *span, number) for number, span in enumerate(spans)), kernels=KERNELS)
    assert same(found.overlapped, [[overlapped]]) and same(found.exposed, [[exposed]]) and found.split_known


def test_each_rank_and_step_has_its_own_computing() -> None:
    events = [Event(0, 20, 60, 0), Event(0, 70, 100, 1, step=1), Event(1, 20, 60, 0), Event(2, 20, 60, 0)]
    kernels = [*KERNELS, kernel(50, 57, rank=1), kernel(0, 99, rank=3)]
    found = bounds(*events, kernels=kernels)
    assert same(found.overlapped, [[20, 10], [7, 0], [NAN, NAN]])
    assert same(found.exposed, [[20, 20], [33, 0], [NAN, NAN]])


def test_events_outside_of_the_steps_are_not_counted() -> None:
    events = [Event(0, 20, 60, 0), Event(0, 70, 100, 1, step=5)]
    found = bounds(*events, steps=[step(0, start=0, end=65)], kernels=KERNELS)
    assert same(found.overlapped, [[20]]) and same(found.exposed, [[20]])
    assert np.isnan(bounds(events[1], steps=[step(0, start=0, end=65)], kernels=KERNELS).overlapped).all()


def test_communication_kernels_and_kernels_without_times_cover_nothing() -> None:
    ignored = [kernel(31, 49, core="COMMUNICATION"), kernel(None, 40), {**kernel(31, 49), "duration": None}]
    found = bounds(Event(0, 20, 60), kernels=[kernel(10, 30), *ignored, kernel(50, 80, core=None)])
    assert same(found.overlapped, [[20]])


@pytest.mark.parametrize("recorded", ["overlapped", "exposed"])
def test_kernels_are_not_asked_where_a_tool_worked_it_out(recorded: str) -> None:
    found = bounds(Event(0, 20, 60), steps=[step(0, start=0, end=90, **{recorded: 3})], kernels=KERNELS)
    other = found.exposed if recorded == "overlapped" else found.overlapped
    assert same(getattr(found, recorded), [[3]]) and same(other, [[NAN]]) and found.split_known


# -- ends of steps as events ---------------------------------------------------------------------------------------------


def test_the_end_of_a_step_is_one_more_event() -> None:
    events = comm_events(
        Event(1, 10, 20, 0, "send"),
        Event(1, 100, 130, 1, step=1),
        Event(3, 15, 20, 0, "receive"),
        Event(3, 300, 310, 2, step=9),
        buffered_sends=True,
    )
    rows = [step(0, 1, start=0, end=100), step(1, 1, start=100, end=150), step(0, 2, start=0, end=90)]
    found = StepBounds(FakeRun(steps=rows), events, None).with_ends(events)
    assert found.ranks.tolist() == [1, 2, 3] and found.rank.tolist() == [0, 0, 0, 0, 1, 2, 2]
    # An end comes after what starts at the same moment; step 9 is none of ours; rank 3 ended with its event.
    assert found.op.tolist() == ["send", "all_reduce", "step_end", "step_end", "step_end", "receive", "step_end"]
    assert found.start.tolist() == [10, 100, 100, 150, 90, 15, 20]
    assert found.end.tolist() == [20, 130, 100, 150, 90, 20, 20]
    assert found.step.tolist() == [0, 1, 0, 1, 0, 0, 0]
    assert found.group_key.tolist() == ["g", "g", None, None, None, "g", None]
    assert found.bytes.tolist() == [-1] * 7 and found.buffered_sends
    assert found.instance[0] == found.instance[5] and found.members.tolist() == [2, 1, 1, 1, 1, 1]
