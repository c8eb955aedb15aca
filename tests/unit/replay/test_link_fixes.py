"""Links repaired in a replay: every collective and message over them, and nothing else."""

from __future__ import annotations

import pytest

from paceline.replay.link_fixes import LinkUse, repair_links
from paceline.replay.replay import Replay
from support.small_cluster import MS, SmallCluster


def replay() -> Replay:
    """A step of 100 ms of work, 40 ms of two all-reduces and 10 ms of an all-gather in g, 20 ms in h, a message of 8 ms."""
    cluster = SmallCluster(4)
    cluster.work([100] * 4)
    cluster.meet(range(4), 30, group="g")
    cluster.meet(range(4), 10, group="g")
    cluster.meet(range(4), 10, group="g", op="all_gather")
    cluster.meet(range(4), 20, group="h")
    cluster.send(2, 3, 8)
    cluster.end_step()
    return cluster.context().replay


def step_ms(*uses: LinkUse) -> float:
    line = replay()
    repaired = line.run(repair_links(line, line.costs, uses))
    return float(repaired.step_ends[2, 0] - repaired.begin[2]) / MS


def use(group: str, op: str, src: int, dst: int, time: float, fixed: float) -> LinkUse:
    return LinkUse(group, op, src, dst, time * MS, fixed * MS)


def test_nothing_repaired() -> None:
    assert step_ms() == step_ms(use("g", "allreduce", 0, 1, 40, 40), use("other", "allreduce", 0, 1, 40, 1)) == 178


def test_a_group_is_as_fast_as_its_slowest_link() -> None:
    slow = use("g", "allreduce", 0, 1, 40, 10)
    assert step_ms(slow) == pytest.approx(178 - 30)
    assert step_ms(slow, use("g", "allreduce", 1, 2, 25, 25)) == pytest.approx(178 - 15)


def test_links_that_take_a_part_of_the_transfer_save_no_more_than_that() -> None:
    assert step_ms(use("g", "allreduce", 0, 1, 20, 5)) == pytest.approx(178 - 15)


def test_links_side_by_side_take_longer_together_than_the_transfer() -> None:
    assert step_ms(use("g", "allreduce", 0, 1, 80, 20)) == pytest.approx(178 - 30)


def test_operators_of_a_group_that_are_not_told_apart() -> None:
    # 50 ms of g in all, of which the slowest link takes 50 and then 25.
    assert step_ms(use("g", "x", 0, 1, 50, 25)) == pytest.approx(178 - 25)


def test_links_may_call_an_operator_by_the_begin_of_its_name() -> None:
    """torch_npu's matrix says reduce for reduce_scatter; here "all" is both, of which the longest name decides."""
    named = use("g", "all", 0, 1, 40, 10), use("g", "allgather", 0, 1, 10, 5)
    assert step_ms(*named) == pytest.approx(178 - 30 - 5)


def test_a_message_has_one_link() -> None:
    assert step_ms(use("p", "send", 2, 3, 8, 2)) == pytest.approx(178 - 6)
    assert step_ms(use("p", "send", 3, 2, 8, 2)) == 178
    assert step_ms(use("p", "send", 2, 3, 4, 1), use("p", "receive", 2, 3, 4, 1)) == pytest.approx(178 - 6)
