"""What the rules look at."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from paceline.diagnosis.context import RankInfo
from paceline.diagnosis.hardware import default_hardware
from paceline.diagnosis.rule_finding import PredictedGain
from paceline.replay.fixes import scale_self_time, scale_transfers
from support.small_cluster import MS, steady_cluster

GIB = 2**30
CLUSTER = steady_cluster(
    [[100, 110], [120, 100], [100, 100]], host=["b", "a", None], device=[0, 1, None], stage=[0, 0, None]
)
CONTEXT = CLUSTER.context(ranks_memory=[{"rank": 0, "peak": 20 * GIB}])


def test_where_each_rank_runs() -> None:
    assert CONTEXT.ranks == [RankInfo(0, "b", 0, 0), RankInfo(1, "a", 1, 0), RankInfo(2, None, None, -1)]
    assert CONTEXT.stages.tolist() == [0, 0, -1]
    assert CONTEXT.global_ranks([2, 0]) == (0, 2)
    assert CONTEXT.hosts_of([0, 1, 2]) == ("a", "b") and CONTEXT.hosts_of([2]) == ()
    with pytest.raises(FrozenInstanceError):
        CONTEXT.ranks[0].stage = 2  # type: ignore[misc]


def test_a_rank_that_no_table_describes() -> None:
    made = steady_cluster([[100], [100]])
    made.ranks = []
    assert made.context().ranks == [RankInfo(0, None, None, -1), RankInfo(1, None, None, -1)]


def test_steps_and_who_came_last() -> None:
    assert CONTEXT.step_ms == 125  # 130 and 120 ms
    assert [CONTEXT.last_share(rank) for rank in (0, 1, 2, 9)] == [0.5, 0.5, 0, 0]
    # Of one step alone.
    assert CLUSTER.context(steps=(2,)).last_share(0) == 1


def test_a_column_of_the_steps_as_ranks_by_steps() -> None:
    made = steady_cluster([[100, 110], [120, 100]], columns={"free": [7, 8]})
    made.steps[1]["free"] = None
    assert np.array_equal(made.context().matrix("free"), [[7 * MS, 7 * MS], [np.nan, 8 * MS]], equal_nan=True)
    assert made.context(steps=(2,)).matrix("free").tolist() == [[7 * MS], [8 * MS]]
    made.steps.append({"rank": 5, "free": 1})  # of no step
    assert made.context(steps=(2,)).matrix("free").tolist() == [[7 * MS], [8 * MS]]


def test_the_gain_is_the_ratio_of_two_replays_of_the_measured_step() -> None:
    replay = CONTEXT.replay
    half = scale_self_time(replay, replay.costs, np.full((3, 2), 0.5))
    gain = CONTEXT.gain(half)
    assert gain == PredictedGain(125, pytest.approx(67.5))  # 60 + 10 and 55 + 10 … (70 + 65) / 2
    assert gain.costs is half
    # A fix that costs time gains nothing.
    assert CONTEXT.gain(scale_transfers(replay.costs, np.arange(2), 9.0)).step_ms_fixed == 125
    assert CONTEXT.no_gain() == PredictedGain(125, 125)


def test_the_measured_step_is_what_the_gain_is_applied_to() -> None:
    made = steady_cluster([[100, 100], [120, 120]])
    context = made.context()
    vars(context)["step_ms"] = 260.0  # twice what is replayed
    fixed = context.gain(scale_transfers(context.replay.costs, np.arange(2), 0.0))
    assert fixed.step_ms_fixed == pytest.approx(240)  # 120 of 130, of 260


def test_a_run_without_steps_gains_nothing() -> None:
    context = steady_cluster([[], []]).context()
    assert context.step_ms == 0 and context.gain(context.replay.costs) == PredictedGain(0, 0)


def test_hardware_and_memory() -> None:
    assert CONTEXT.hardware is default_hardware()
    assert np.isnan(CONTEXT.memory.numbers["share"]).all()  # the capacity is not known
