"""What each fix leaves of the measured costs, worked out by hand; ns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.metrics.peers import Excess
from paceline.replay.fixes import (
    at_peer_speed,
    balance_stages,
    combine_fixes,
    reduce_self_time,
    scale_self_time,
    scale_transfers,
    start_steps_earlier,
    with_equal_work,
    without_jitter,
)
from paceline.replay.replay import Costs, Replay
from support.small_timeline import Row, event, small_timeline, step_end

NAN = float("nan")
FIRST, SECOND, SIDE, END = 1, 2, 3, 0
"""Places of the program."""

Works = list[list[list[int]]]
"""By rank and step: the work before each event, and before the end of the step."""


def program(works: Works, *, overlap: int = 0, side: int | None = None) -> Replay:
    """Every rank runs the same events step by step, each alone; `side` is the work of one more, on a side stream."""
    rows: list[Row] = []
    for rank, steps in enumerate(works):
        own = 0
        for step, (*events, last) in enumerate(steps):
            for place, work in enumerate(events):
                own += work
                anchor = -1 if place == step == 0 else len(rows) - 1
                more = {"step": step, "place": FIRST + place, "own": own, "overlap": overlap}
                rows.append(event(rank, "all_reduce", len(rows), 0, 0, work, anchor, **more))
            if side is not None:
                more = {"step": step, "place": SIDE, "own": own, "overlap": overlap, "side": 1}
                rows.append(event(rank, "reduce_scatter", len(rows), 0, 0, side + 30 * (rank == 0), -1, **more))
            own += last
            anchor = len(rows) - (1 if side is None else 2)
            rows.append(step_end(rank, len(rows), 0, last, anchor, step=step, place=END, own=own))
    return Replay(small_timeline(rows, steps=range(len(works[0]))))


def excess(relative: list[list[float]], *groups: tuple[int, ...]) -> Excess:
    values = 1 + np.array(relative, dtype=np.float64)
    return Excess(groups, values, np.ones(values.shape), 0.0, 0.0, np.ones(len(values)))


def work(replay: Replay, costs: Costs, rank: int) -> list[float]:
    return costs.work[replay.timeline.events.rank == rank].tolist()  # type: ignore[no-any-return]


def test_self_time_is_scaled_by_rank_and_step() -> None:
    replay = program([[[10, 2], [20, 4]], [[30, 6], [40, 8]]], overlap=100)
    factors = np.array([[0.5, 1.0], [NAN, 2.0]])
    costs = scale_self_time(replay, replay.costs, factors)
    assert costs.work.tolist() == [5, 1, 20, 4, 30, 6, 80, 16]
    assert costs.overlap.tolist() == [50, 0, 100, 0, 100, 0, 200, 0]
    assert costs.transfer is replay.costs.transfer


def test_a_slow_rank_needs_what_its_peers_need_at_the_same_place() -> None:
    """Peers need 10, 12 and 11 before the first event: 11; at the second the rank was not slower, so nothing is gained."""
    replay = program([[[30, 19, 3]], [[10, 20, 3]], [[12, 20, 3]], [[11, 22, 3]]], overlap=5)
    costs = at_peer_speed(replay, replay.costs, [0], excess([[0.5]] + [[0]] * 3, (0, 1, 2, 3)))
    # 19 of 52 are saved; wanted is 52 · (1 - 1 / 1.5) = 17.3.
    assert work(replay, costs, 0) == [11, 19, 3]
    assert costs.work[3:].tolist() == replay.costs.work[3:].tolist()
    assert costs.overlap.tolist() == replay.costs.overlap.tolist()


def test_of_two_peers_in_the_middle_the_mean_counts_and_slow_ones_are_not_asked() -> None:
    replay = program([[[30, 0]], [[10, 0]], [[13, 0]], [[90, 0]], [[1, 0]]])
    costs = at_peer_speed(replay, replay.costs, [0, 3], excess([[0]] * 5, (0, 1, 2, 3), (4,)))
    assert [work(replay, costs, rank)[0] for rank in range(5)] == [11.5, 10, 13, 11.5, 1]


def test_peers_are_asked_about_the_same_step() -> None:
    replay = program([[[30, 0], [60, 0]], [[10, 0], [20, 0]]])
    everywhere = at_peer_speed(replay, replay.costs, [0], excess([[0, 0], [0, 0]], (0, 1)))
    assert work(replay, everywhere, 0) == [10, 0, 20, 0]
    once = at_peer_speed(replay, replay.costs, [0], excess([[9, 9], [0, 0]], (0, 1)), steps=[1])
    # Step 1 saves 40 of the 54 that an excess of 9 asks for: more than 0.7 of it.
    assert work(replay, once, 0) == [30, 0, 20, 0]


def test_places_where_no_peer_has_been_stay_as_they_are() -> None:
    replay = program([[[30, 40, 1]], [[10, 1]]])
    costs = at_peer_speed(replay, replay.costs, [0], excess([[0], [0]], (0, 1)))
    assert work(replay, costs, 0) == [10, 40, 1]


@pytest.mark.parametrize(
    ("peer", "factor"),
    [
        (36, 1.0),  # saves 14 of the 20 wanted: 0.7
        (37, 80 / 87),  # saves 13: of the 87 left another 7 have to go
        (50, 0.8),
    ],
)
def test_what_places_do_not_explain_is_taken_off_everything(peer: int, factor: float) -> None:
    """Self time 100 with an excess of a quarter: 100 · (1 - 1 / 1.25) = 20 are wanted; the side stream saves nothing."""
    replay = program([[[50, 50, 0]], [[peer, 50, 0]]], overlap=10, side=10)
    costs = at_peer_speed(replay, replay.costs, [0], excess([[0.25], [0]], (0, 1)))
    assert work(replay, costs, 0) == pytest.approx([peer * factor, 50 * factor, 10 * factor, 0])
    assert costs.overlap[:4] == pytest.approx([10 * factor, 10 * factor, 10 * factor, 0])
    assert costs.overlap[4:].tolist() == replay.costs.overlap[4:].tolist()


def test_only_the_steps_that_are_slow_are_scaled() -> None:
    replay = program([[[100, 0], [100, 0], [100, 0], [100, 0], [100, 0]]])
    costs = at_peer_speed(replay, replay.costs, [0], excess([[0.25, -0.5, NAN, -1, 99]], (0,)))
    assert work(replay, costs, 0)[::2] == pytest.approx([80, 100, 100, 100, 5])  # never below a twentieth


def test_what_one_step_saves_does_not_count_for_another() -> None:
    """Both steps are to save 20 of 100; the first saves nothing place by place, the second 50."""
    replay = program([[[100, 0], [100, 0]], [[100, 0], [50, 0]]])
    costs = at_peer_speed(replay, replay.costs, [0], excess([[0.25, 0.25], [0, 0]], (0, 1)))
    assert work(replay, costs, 0)[::2] == pytest.approx([80, 50])


def test_without_jitter_all_need_a_quantile_of_what_peers_need_in_any_step() -> None:
    replay = program([[[10, 1], [30, 2]], [[20, 3], [40, 4]], [[99, 9], [99, 9]]], overlap=8)
    costs = replace(replay.costs, overlap=replay.costs.work * 2)
    quiet = without_jitter(replay, costs, [(0, 1)], quantile=0.5)
    assert quiet.work.tolist() == [10, 1, 25, 2, 20, 2.5, 25, 2.5, 99, 9, 99, 9]
    assert quiet.overlap.tolist() == (quiet.work * 2).tolist()
    assert without_jitter(replay, costs, [(0,), (1,)], quantile=1).work.tolist() == replay.costs.work.tolist()
    # A rank of which no event was recorded has nothing to be quiet about.
    assert without_jitter(replay, costs, [(7,), (0, 1)], quantile=0.5).work.tolist() == quiet.work.tolist()


def test_two_fixes_leave_the_product_of_what_each_leaves() -> None:
    def costs(*values: float) -> Costs:
        return Costs(*(np.array([value, 0.0]) for value in values))

    both = combine_fixes(costs(100, 200, 40), costs(50, 200, 30), costs(80, 100, 20))
    assert [values.tolist() for values in (both.work, both.transfer, both.overlap)] == [[40, 0], [100, 0], [15, 0]]


def test_work_is_dealt_evenly_among_peers_place_by_place_and_step_by_step() -> None:
    replay = program([[[10, 50, 1], [30, 0, 2]], [[20, 10, 3], [50, 8, 4]], [[7, 7, 7], [7, 7, 7]]])
    costs = with_equal_work(replay, replace(replay.costs, overlap=replay.costs.work * 3), [(0, 1)])
    assert work(replay, costs, 0) == work(replay, costs, 1) == [15, 30, 2, 40, 4, 3]
    assert work(replay, costs, 2) == [7] * 6 and costs.overlap.tolist() == (costs.work * 3).tolist()


def test_micro_batches_are_made_alike_where_computing_was_recorded_by_name() -> None:
    names = [("forward", 10, "computing"), ("backward", 20, "computing"), ("forward", 50, "computing")]
    names += [("backward", 40, "computing"), ("forward", 90, "g")]
    rows = [
        event(0, op, place, 0, 0, overlap=overlap, group=group, place=place)
        for place, (op, overlap, group) in enumerate(names)
    ]
    replay = Replay(small_timeline(rows))
    assert with_equal_work(replay, replay.costs, [(0,)]).overlap.tolist() == [30, 30, 30, 30, 90]


def test_stages_are_balanced_to_their_mean_step_by_step() -> None:
    """Medians of the stages: 20 and 40 in the first step, 10 and 30 in the second."""
    replay = program([[[10, 0], [10, 0]], [[30, 0], [10, 0]], [[40, 0], [30, 0]], [[9, 0], [9, 0]]])
    costs = balance_stages(replay, replay.costs, [(0, 1), (2,)])
    assert work(replay, costs, 0) == [15, 0, 20, 0] and work(replay, costs, 1) == [45, 0, 20, 0]
    assert work(replay, costs, 2) == [30, 0, 20, 0] and work(replay, costs, 3) == [9, 0, 9, 0]
    rows = [step_end(rank, rank, 0, 40, -1, own=40) for rank in (0, 1)]
    unknown = Replay(small_timeline([*rows, event(2, "all_reduce", 2, 0, 0, 7)]))  # no end: no self time
    assert balance_stages(unknown, unknown.costs, [(0,), (1,), (2,)]).work.tolist() == [40, 40, 7]


def test_self_time_is_reduced_by_a_time_but_never_below_zero() -> None:
    replay = program([[[80, 20], [80, 20], [80, 20], [80, 20]]])
    costs = reduce_self_time(replay, replay.costs, np.array([[30.0, 200.0, NAN, -5.0]]))
    assert work(replay, costs, 0) == pytest.approx([56, 14, 0, 0, 80, 20, 80, 20])


def test_steps_start_earlier_by_less_work_before_all_that_follows_their_begin() -> None:
    replay = program([[[80, 20, 7], [30, 6, 8]], [[10, 5, 1], [9, 5, 1]]], side=40)
    costs = start_steps_earlier(replay, replay.costs, np.array([[50.0, 12.0], [NAN, 100.0]]))
    # The side stream of each step is issued at its begin too (70 on rank 0), and moves along.
    assert work(replay, costs, 0) == [30, 20, 20, 7, 18, 6, 58, 8]
    assert work(replay, costs, 1) == [10, 5, 40, 1, 0, 5, 0, 1]


def test_a_step_after_one_that_was_not_recorded_has_no_begin() -> None:
    rows = [event(0, "all_reduce", 0, 0, 0, 50, -1, step=1), step_end(0, 1, 0, 5, 0, step=1)]
    rows += [event(0, "all_reduce", 2, 0, 0, 40, 1, step=2), step_end(0, 3, 0, 6, 2, step=2)]
    replay = Replay(small_timeline(rows, steps=(0, 1, 2)))
    assert start_steps_earlier(replay, replay.costs, np.array([[9.0, 9.0, 9.0]])).work.tolist() == [50, 5, 31, 6]
    first_step = Replay(small_timeline([event(0, "all_reduce", 0, 0, 0, 50)]))  # whose end was not recorded
    assert start_steps_earlier(first_step, first_step.costs, np.array([[9.0]])).work.tolist() == [41]


def test_transfers_are_scaled_one_by_one_or_all_alike() -> None:
    costs = Costs(np.zeros(1), np.array([10.0, 20.0, 30.0]), np.zeros(1))
    assert scale_transfers(costs, np.array([0, 2]), 0.5).transfer.tolist() == [5, 20, 15]
    assert scale_transfers(costs, np.array([0, 2]), np.array([0.1, 2.0])).transfer.tolist() == [1, 20, 60]
