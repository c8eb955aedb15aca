"""The numbers of the straggler study, worked out by hand on small pipelines; s."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.timeline.operation_graph import Operation, Recorded
from paceline.replay.straggler_study import StragglerStudy, straggler_study
from support.fake_run import FakeRun

Seconds = list[list[float]]
"""Replicas × steps."""


def recorded(start: Seconds | float, end: Seconds | float, *, message: bool = False, sums: bool = False) -> Recorded:
    number = 0 if message else None
    begin, finish = (np.atleast_2d(np.array(times, dtype=np.float64)) * 1e9 for times in (start, end))
    return Recorded(begin, finish, message or sums, serves=number, message=number)


def one_message(send_end: float = 2.5, receive_start: float = 2.0) -> StragglerStudy:
    """One micro-batch, forward 1 s and 3 s, message 0.5 s; the receive begins 0.5 s late: a launch delay."""
    return StragglerStudy(
        {
            Operation("forward-compute", 0, 0): recorded(0.25, 1.25),
            Operation("forward-send", 0, 0): recorded(1.25, send_end, message=True),
            Operation("forward-recv", 0, 1): recorded(receive_start, 2.5, message=True),
            Operation("forward-compute", 0, 1): recorded(2.5, 5.5),
        }
    )


def test_the_replay_leaves_launch_delays_out() -> None:
    study = one_message()
    assert study.recorded_time == pytest.approx(5.25)
    assert (study.time, study.ideal_time) == pytest.approx((1 + 0.5 + 3, 2 + 0.5 + 2))
    without = study.replay({**study.costs, Operation("forward-compute", 0, 1): np.full((1, 1), 2e9)})
    assert without == pytest.approx([3.5])


@pytest.mark.parametrize(("end", "transfer"), [(1.991, -0.009), (1.99, 0.0), (1.5, 0.0), (2.0, 0.0), (2.1, 0.1)])
def test_a_transfer_that_ended_long_before_it_began_is_taken_for_none(end: float, transfer: float) -> None:
    """The receive begins at 2 s; 10 ms before that is wrong."""
    costs = one_message(send_end=end).costs
    assert costs[Operation("forward-send", 0, 0)] / 1e9 == pytest.approx(transfer)
    assert costs[Operation("forward-compute", 0, 1)] / 1e9 == pytest.approx(3)


@pytest.fixture(scope="module")
def replicas() -> StragglerStudy:
    """Two replicas, three steps: forward 1 s, or 2, 4 and 3 s; backward 2 s; gradients 0.5, 0.5 and 0.8 s; delays 0.25 s."""
    forward = np.array([[1.0, 1.0, 1.0], [2.0, 4.0, 3.0]])
    begin = forward + 2.75  # of the gradients: 0.25 s at the beginning of the step, before backward and after it
    end = np.broadcast_to(begin.max(axis=0) + np.array([0.5, 0.5, 0.8]), begin.shape)
    return StragglerStudy(
        {
            Operation("forward-compute", 0, 0): recorded(np.full((2, 3), 0.25).tolist(), (0.25 + forward).tolist()),
            Operation("backward-compute", 0, 0): recorded((0.5 + forward).tolist(), (2.5 + forward).tolist()),
            Operation("grads-all-reduce", 0, 0): recorded(begin.tolist(), end.tolist(), sums=True),
        }
    )


def test_replicas_wait_for_each_other_where_gradients_are_summed(replicas: StragglerStudy) -> None:
    assert replicas.step_times == pytest.approx([2 + 2 + 0.5, 4 + 2 + 0.5, 3 + 2 + 0.8])
    assert replicas.time == pytest.approx(5.6)
    assert replicas.recorded_time == pytest.approx(5.6 + 0.5)


def test_ideal_is_the_mean_of_computing_and_the_median_of_transfers(replicas: StragglerStudy) -> None:
    assert replicas.ideal_time == pytest.approx(2 + 2 + 0.5)
    assert replicas.slowdown == pytest.approx(5.6 / 4.5)
    assert {o.name: float(cost[1, 2]) / 1e9 for o, cost in replicas.ideal.items()} == {
        "forward-compute": pytest.approx(2),
        "backward-compute": pytest.approx(2),
        "grads-all-reduce": pytest.approx(0.5),
    }


def test_a_worker_is_scored_by_its_stage_and_its_replica_alone(replicas: StragglerStudy) -> None:
    # Only replica 0 as recorded: 4.5, 4.5 and 4.8 s, because its part of the last sum took 0.8 s.
    assert replicas.worker_scores == pytest.approx(np.array([[4.6 / 4.5, 5.6 / 4.5]]))
    # Of two workers 3 % are one: the second; without it the step takes 4.6 s.
    assert replicas.worst_workers_share == pytest.approx((5.6 - 4.6) / (5.6 - 4.5))
    assert replicas.explained(np.array([[True, False]])) == pytest.approx(0)
    assert replicas.last_stage_share == pytest.approx(1)


def test_the_last_stage_explains_what_it_costs() -> None:
    """Two micro-batches of 1 s on the first stage and of 3 s on the last, which nothing joins: 6 s; ideal 2 s each: 4 s."""
    study = StragglerStudy(
        {
            Operation("forward-compute", number, stage): recorded(number * cost, (number + 1) * cost)
            for stage, cost in ((0, 1.0), (1, 3.0))
            for number in (0, 1)
        }
    )
    assert (study.time, study.ideal_time, study.last_stage_share) == pytest.approx((6, 4, 1))
    assert study.worker_scores == pytest.approx(np.array([[1.0], [1.5]]))
    assert study.explained(np.array([[True], [False]])) == pytest.approx(0)


@pytest.mark.parametrize(
    ("workers", "without"), [(33, 2.0), (34, None), (100, None)], ids=["one", "two", "three, not four"]
)
def test_the_worst_three_per_cent_of_the_workers(workers: int, without: float | None) -> None:
    """All need 1 s but some of 2 s and one of 3 s; ideal is the mean. 3 % of 33 are one, of 34 two, of 100 three."""
    slow = {33: [3.0, 2.0], 34: [3.0, 2.0], 100: [3.0, 2.0, 2.0]}[workers]
    times = [[1.0]] * (workers - len(slow)) + [[each] for each in slow]
    mean = (workers - len(slow) + sum(slow)) / workers
    study = StragglerStudy({Operation("forward-compute", 0, 0): recorded([[0.0]] * workers, times)})
    assert study.worst_workers_share == pytest.approx((3 - (without or mean)) / (3 - mean))


def test_three_per_cent_of_a_hundred_workers_are_three() -> None:
    times = [[1.0]] * 96 + [[3.0], [2.5], [2.5], [2.0]]
    study = StragglerStudy({Operation("forward-compute", 0, 0): recorded([[0.0]] * 100, times)})
    assert study.worst_workers_share == pytest.approx((3 - 2) / (3 - 1.06))


def test_the_study_of_a_run() -> None:
    run = FakeRun(
        ranks=[{"rank": 0, "stage": 0}],
        kernels=[{"rank": 0, "step": 1, "name": "forward-compute", "start": 5, "duration": 3 * 10**9}],
    )
    study = straggler_study(run)  # type: ignore[arg-type]
    assert study.time == pytest.approx(3) and study.steps is not None and study.steps.numbers == (1,)
