"""Profiler level 0: steps that take equally long although their work does not prove that ranks wait for each other."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.timeline.rank_timeline import Timeline, read_timeline
from paceline.replay.replay import Replay
from support.fake_run import FakeRun

WORK = [70, 70, 100]


def level_0(work: list[int], step: int = 110, *, skew: int | None = None) -> Timeline:
    """Ranks of which only durations were recorded, or starts on clocks that differ by `skew` from rank to rank."""
    rows = [
        {"rank": rank, "step": number, "duration": step, "exposed": step - time}
        | ({} if skew is None else {"start": skew * rank + step * number, "end": skew * rank + step * number + step})
        for rank, time in enumerate(work)
        for number in range(3)
    ]
    kernels = [{"rank": rank, "start": 5_000 + rank, "duration": 50, "core": "AI_CORE"} for rank in range(len(work))]
    return read_timeline(FakeRun(steps=rows, kernels=kernels))


@pytest.mark.parametrize("skew", [None, 0, 1_000_000])
def test_what_peers_wait_for_a_slow_rank_is_not_their_work(skew: int | None) -> None:
    """110 = 100 of the slow rank + 10 of communication; at 70 like its peers, the step takes 80."""
    timeline = level_0(WORK, skew=skew)
    assert timeline.self_time().tolist() == [[time] * 3 for time in WORK]
    replay = Replay(timeline)
    assert replay.base.step_times.tolist() == [110] * 3
    faster = np.where(timeline.events.rank == 2, 0.7, 1.0)
    as_peers = replay.costs.__class__(replay.costs.work * faster, replay.costs.transfer, replay.costs.overlap)
    assert replay.run(as_peers).step_times.tolist() == [80] * 3


def test_kernels_on_another_clock_do_not_count_as_idle_time() -> None:
    assert set(level_0(WORK).computed.tolist()) == {-1}


def test_ranks_whose_steps_differ_do_not_wait_for_each_other() -> None:
    rows = [{"rank": rank, "step": 0, "duration": 100 + 20 * rank, "exposed": 10} for rank in range(2)]
    timeline = read_timeline(FakeRun(steps=rows))
    assert timeline.is_end.all()


def test_one_rank_alone_waits_for_nobody_that_is_recorded() -> None:
    assert level_0([70]).is_end.all()
