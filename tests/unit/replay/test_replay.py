"""The dependency graph evaluated again, against moments worked out by hand; ns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.replay.replay import Replay, ReplayResult, _in_or_behind_circles
from support.small_timeline import event, small_timeline, step_end

NAN = float("nan")

MEETING = [
    event(0, "all_reduce", 0, 10, 35, work=10),
    step_end(0, 1, 42, work=7, anchor=0),
    event(1, "all_reduce", 0, 30, 36, work=25),
    step_end(1, 2, 38, work=2, anchor=2),
]
"""Rank 1 begins at 5 and arrives at 30, 20 after rank 0; the transfer takes 6, and rank 0 leaves 1 before rank 1."""


def meeting() -> Replay:
    return Replay(small_timeline(MEETING, begin=[0, 5]))


def moments(replay: Replay, **costs: dict[int, float]) -> list[float]:
    """Starts of all events with some costs changed, by place."""
    changed = {}
    for name, values in costs.items():
        changed[name] = getattr(replay.costs, name).copy()
        changed[name][list(values)] = list(values.values())
    return replay.run(replace(replay.costs, **changed)).start.tolist()  # type: ignore[no-any-return]


def test_the_unchanged_run_is_replayed_as_it_was() -> None:
    replay = meeting()
    assert replay.base.start.tolist() == [10, 42, 30, 38]
    assert replay.base.end.tolist() == [35, 42, 36, 38]
    assert replay.base.step_ends.tolist() == [[42], [38]] and replay.base.begin.tolist() == [0, 5]
    assert replay.base.step_time == replay.measured.step_time == (42 + 33) / 2
    assert replay.residual == 0
    assert replay.base is replay.base and replay.measured is replay.measured


def test_who_arrives_last_decides_when_all_go_on() -> None:
    assert moments(meeting(), work={2: 10}) == [10, 27, 15, 23]  # 15 + 6 - 1 + 7, and 15 + 6 + 2
    assert moments(meeting(), work={2: 3}) == [10, 22, 8, 18]  # now rank 0 is last: 10 + 6 - 1 + 7


def test_transfers_and_overlap_can_be_changed_too() -> None:
    # Rank 0 leaves 1 before rank 1: of a third of the transfer, a third of it.
    assert moments(meeting(), transfer={0: 2}) == pytest.approx([10, 39 - 1 / 3, 30, 34])
    assert moments(meeting(), transfer={0: 0}) == [10, 37, 30, 32]
    assert moments(meeting(), transfer={0: 12}) == [10, 48, 30, 44]  # no longer than it was
    assert moments(meeting(), overlap={0: 40}) == [10, 57, 30, 38]  # computing until 10 + 40
    assert moments(meeting(), overlap={0: 20}) == [10, 42, 30, 38]  # over before the transfer is
    assert replace(meeting().costs).with_transfer(np.array([1.0])).transfer.tolist() == [1]


@pytest.mark.parametrize(("end", "left"), [(44, 42), (42, 42), (41, 41), (31, 31), (30, 30), (28, 30), (20, 30)])
def test_a_member_leaves_within_a_transfer_of_the_others(end: int, left: int) -> None:
    """The last arrives at 30 and the transfer takes 6: rank 0 leaves at 36, at most 6 later or sooner."""
    rows = [MEETING[0] | {"end": end}, *MEETING[1:]]
    assert Replay(small_timeline(rows, begin=[0, 5])).base.end[0] == left


@pytest.mark.parametrize(
    ("lag", "work", "start"), [(2, 30, 52), (2, 52, 52), (2, 53, 53), (0, 30, 50), (9, 55, 59), (9, 61, 61)]
)
def test_an_event_starts_when_both_its_predecessors_allow(lag: int, work: int, start: int) -> None:
    """A side stream from 10 to 50: what waits for it starts no sooner than `lag` after its end, or after its own work."""
    rows = [
        event(0, "reduce_scatter", 0, 10, 50, work=10, side=1),
        step_end(0, 1, 52, work=work, anchor=-1, after=0, lag=lag),
    ]
    assert Replay(small_timeline(rows)).base.start.tolist() == [10, start]


def test_collectives_of_different_groups_do_not_wait_for_each_other() -> None:
    rows = []
    for rank, (instance, work) in enumerate([(0, 10), (0, 20), (1, 50), (1, 40)]):
        last = {0: 20, 1: 50}[instance]
        rows += [
            event(rank, "all_reduce", instance, work, last + 4 * (instance + 1), work),
            step_end(rank, 2 + rank, 0, work=1, anchor=2 * rank),
        ]
    replay = Replay(small_timeline(rows))
    assert replay.base.step_ends.ravel().tolist() == [25, 25, 59, 59]  # 20 + 4 + 1 and 50 + 8 + 1
    assert moments(replay, work={2: 12}, transfer={1: 3})[1::2] == [17, 17, 54, 54]


def test_order_comes_from_the_graph_where_clocks_disagree() -> None:
    """Rank 1's clock is 1000 behind: by their starts its events would come before what they follow."""
    rows = [
        event(0, "all_reduce", 0, 1010, 1020, work=10),
        event(0, "all_reduce", 1, 1025, 1030, work=5, anchor=0),
        step_end(0, 2, 1031, work=1, anchor=1),
        event(1, "all_reduce", 0, 15, 20, work=15),
        event(1, "all_reduce", 1, 23, 30, work=3, anchor=3),
        step_end(1, 3, 32, work=2, anchor=4),
    ]
    rows += [event(2, "all_reduce", 4, 7, 9, work=1, after=5), step_end(2, 5, 2, work=1, anchor=6)]
    replay = Replay(small_timeline(rows, begin=[1000, 0, 0]))
    # 1010 + 5 - (tail of rank 0: 1020 - 1010 - 5 = 5) and so on; what matters: rank 2 follows the end of rank 1.
    ends = replay.base.step_ends.ravel()
    assert replay.base.start[6] == ends[1] and ends[2] == ends[1] + 2 + 1
    assert replay.base.start[4] == replay.base.end[3] + 3 and replay.base.start[1] == replay.base.end[0] + 5


def test_a_circle_of_dependencies_is_evaluated_as_far_as_it_goes() -> None:
    rows = [event(0, "all_reduce", 0, 1, 2, work=1, anchor=1), step_end(0, 1, 3, work=1, anchor=0)]
    assert np.isfinite(Replay(small_timeline(rows)).base.start).all()


BUFFERED = [
    event(0, "send", 0, 10, 12, work=10),
    event(0, "send", 1, 100, 102, work=88, anchor=0),
    step_end(0, 2, 110, work=8, anchor=1),
    event(1, "receive", 0, 5, 30, work=5),
    event(1, "receive", 1, 150, 153, work=120, anchor=3),
    step_end(1, 3, 160, work=7, anchor=4),
]
"""Sends hold their rank for 2, receives for 3 (the second message had long arrived); the latency is 30 - 10 = 20."""


def test_the_sender_of_a_buffered_message_goes_on_and_the_receiver_waits_for_the_arrival() -> None:
    replay = Replay(small_timeline(BUFFERED, buffered_sends=True))
    assert replay.base.start.tolist() == [10, 100, 110, 5, 150, 160]
    assert replay.base.end.tolist() == [12, 102, 110, 30, 153, 160]
    assert moments(replay, work={0: 0}) == [0, 90, 100, 5, 140, 150]  # the first message arrives at 20
    assert moments(replay, work={1: 188}) == [10, 200, 210, 5, 150, 227]  # the second one at 220
    assert moments(replay, transfer={0: 1}) == [10, 100, 110, 5, 131, 141]  # arrives at 11
    assert moments(replay, work={3: 95}) == [10, 100, 110, 95, 218, 228]  # has arrived: 95 + 3 + 120


def test_step_times_are_means_over_the_ranks_that_recorded_the_step() -> None:
    ends = np.array([[10.0, 25.0, NAN, NAN], [12.0, 26.0, 50.0, NAN]])
    result = ReplayResult(np.zeros(0), np.zeros(0), ends, np.array([0.0, 2.0]))
    assert result.step_times.tolist() == [10, 14.5, 24, 0]
    assert result.step_time == (10 + 14.5) / 2
    assert ReplayResult(np.zeros(0), np.zeros(0), ends[:, :0], np.array([0.0, 2.0])).step_time == 0


def test_the_residual_is_a_share_of_the_measured_step() -> None:
    rows = [event(0, "all_reduce", 0, 10, 15, work=10), step_end(0, 1, 40, work=7, anchor=0)]
    assert Replay(small_timeline(rows)).residual == pytest.approx((22 - 40) / 40)
    nothing = [event(0, "all_reduce", 0, 0, 0), step_end(0, 1, 0, work=5, anchor=0)]
    assert Replay(small_timeline(nothing)).residual == 0


def test_dependencies_in_a_circle_are_cut_where_they_run_against_the_clock() -> None:
    """Two collectives that the ranks went through in different orders: by the clock, instance 0 comes before instance 1."""
    rows = [
        event(0, "all_reduce", 0, 10, 30, work=10),
        event(0, "all_reduce", 1, 40, 44, work=10, anchor=0),
        step_end(0, 2, 54, work=10, anchor=1),
        event(1, "all_reduce", 1, 15, 19, work=15),
        event(1, "all_reduce", 0, 24, 30, work=5, anchor=3),
        step_end(1, 3, 45, work=15, anchor=4),
    ]
    replay = Replay(small_timeline(rows))
    assert replay.contradictions == 1
    assert replay.base.start.tolist() == [10, 40, 54, 15, 24, 45]  # rank 1 goes on when it was recorded to, at 24
    assert moments(replay, work={0: 0, 5: 5}) == [0, 40, 54, 15, 24, 35]
    assert meeting().contradictions == 0


def test_what_waits_for_a_circle_is_behind_it_and_what_leads_to_it_is_not() -> None:
    """0 → 1 → 2 → 3, where 3 and 4 wait for each other, and 5 waits for 2 and 4; node 6 stands alone."""
    later, earlier = np.array([1, 2, 3, 4, 3, 5, 5]), np.array([0, 1, 2, 3, 4, 4, 2])
    assert _in_or_behind_circles(later, earlier, 7).tolist() == [False] * 3 + [True] * 3 + [False]
