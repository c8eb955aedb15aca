"""The parts of the loss: shares of faults, and what is left when the rest is fixed one after the other; numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.diagnosis.context import DiagnosisContext
from paceline.replay import loss as loss_module
from paceline.replay.fixes import scale_self_time, scale_transfers
from paceline.replay.loss import Loss, account, shapley
from paceline.replay.replay import Costs
from support.small_cluster import SmallCluster, steady_cluster


def faster(context: DiagnosisContext, rank: int, time: float) -> Costs:
    """The costs with this rank at this self time, ms."""
    factors = np.ones(context.self_time.shape)
    factors[rank] = time * 1e6 / context.self_time[rank]
    return scale_self_time(context.replay, context.replay.costs, factors)


def split(context: DiagnosisContext, *faults: Costs, input_wait: float = 0) -> Loss:
    wait = np.full(context.self_time.shape, input_wait * 1e6)
    named = [(f"fault {number}", costs) for number, costs in enumerate(faults)]
    return account(context.replay, named, classes=context.peer_groups, input_wait=wait)


def ms(loss: Loss) -> dict[str, list[float]]:
    """Parts that are not nothing, step by step."""
    return {part.cause: (part.share / 1e6).round(6).tolist() for part in loss.parts if part.share.round(3).any()}


def assert_adds_up(loss: Loss) -> None:
    assert sum(part.share for part in loss.parts) + loss.best == pytest.approx(loss.measured)


def test_each_step_has_parts_of_its_own() -> None:
    """Rank 0 needs 150 ms in the first step and 130 in the second; transfers take 10; rank 3 has 12 more in the third."""
    times = [[150, 130, 100], [100] * 3, [100] * 3, [100, 100, 112]]
    context = steady_cluster(times, transfer=10).context()
    loss = split(context, faster(context, 0, 100))
    assert ms(loss) == {"fault 0": [50, 30, 0], "uneven": [0, 0, 12], "communication": [10, 10, 10]}
    assert (loss.parts[0].alone / 1e6).round(6).tolist() == [50, 30, 0]
    assert (loss.best / 1e6).tolist() == [100, 100, 100]
    assert_adds_up(loss)


def test_idle_stages_and_input_come_after_communication() -> None:
    """34 ms, a message of 2, 30 ms, a sum of 5: without transfers 64 ms, of which each stage works 34; 4 wait for input."""
    cluster = SmallCluster(2, stage=[0, 1])
    for _ in range(3):
        cluster.work([34, 4])
        cluster.send(0, 1, 2)
        cluster.work([0, 30])
        cluster.meet([0, 1], 5)
        cluster.end_step(data_wait=[4, 4])
    loss = split(cluster.context(), input_wait=4)
    assert ms(loss) == {"communication": [7] * 3, "bubble": [30] * 3, "input": [4] * 3}
    assert (loss.best / 1e6).tolist() == [30] * 3
    assert_adds_up(loss)


def test_what_the_replay_does_not_reproduce_is_unexplained() -> None:
    context = steady_cluster([[100] * 3] * 2, transfer=10).context()
    replay = context.replay
    off = account(replay, [], classes=context.peer_groups, input_wait=np.zeros((2, 3)))
    assert off.parts[-1].cause == "unexplained" and not off.parts[-1].share.any()
    replay.__dict__["base"] = replay.run(scale_transfers(replay.costs, np.arange(3), 0.5))
    off = account(replay, [], classes=context.peer_groups, input_wait=np.zeros((2, 3)))
    assert (off.parts[-1].share / 1e6).tolist() == [5, 5, 5]
    assert (sum(part.share for part in off.parts) + off.best).tolist() == off.measured.tolist()


def test_more_faults_than_orders_can_be_tried_are_fixed_one_after_the_other() -> None:
    context = steady_cluster([[150 - 5 * rank] * 2 for rank in range(6)] + [[100] * 2] * 6, transfer=0).context()
    faults = [("slow-rank", faster(context, rank, 100)) for rank in range(6)]
    split = account(context.replay, faults, classes=context.peer_groups, input_wait=np.zeros((12, 2)))
    assert [round(float(part.share[0]) / 1e6) for part in split.parts[:6]] == [5, 5, 5, 5, 5, 25]
    assert (sum(part.share for part in split.parts) + split.best).tolist() == split.measured.tolist()


def test_shares_of_players_add_up_and_are_alike_for_those_that_are_alike() -> None:
    worth = {
        frozenset[int](): 100.0, frozenset({0}): 90.0, frozenset({1}): 90.0, frozenset({2}): 100.0,
        frozenset({0, 1}): 60.0, frozenset({0, 2}): 90.0, frozenset({1, 2}): 90.0, frozenset({0, 1, 2}): 60.0,
    }  # fmt: skip
    shares = [float(share) for share in shapley(3, lambda fixed: np.asarray(worth[fixed]))]
    assert shares == pytest.approx([20, 20, 0])


def test_shares_are_means_over_all_orders() -> None:
    """What three players save together, in each of the six orders: 0 saves 1, 1, 3, 5, 1, 5; 1 saves 4, 8, 2, 2, 8, 4."""
    saved = {(): 0, (0,): 1, (1,): 2, (2,): 3, (0, 1): 5, (0, 2): 4, (1, 2): 7, (0, 1, 2): 12}
    shares = shapley(3, lambda fixed: np.asarray(20.0 - saved[tuple(sorted(fixed))]))
    assert [float(share) for share in shares] == pytest.approx([16 / 6, 28 / 6, 28 / 6])


def test_input_that_fixes_and_even_work_took_already_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4, 4, 10 and 4: faults took 1 of the first; even work 3 of it, which is as usual, and 5 of the 6 above the median."""
    saved = iter([np.array([[1.0, 0], [0, 0]]), np.array([[3.0, 0], [5, 0]])])
    monkeypatch.setattr(loss_module, "_saved", lambda replay, before, after: next(saved))
    left = loss_module._input_left(_Nothing(), None, None, np.array([[4.0, 4], [10, 4]]))  # type: ignore[arg-type]
    assert left.tolist() == [[3, 4], [5, 4]]
    assert loss_module._input_left(_Nothing(), None, None, np.zeros((0, 0))).size == 0  # type: ignore[arg-type]


class _Nothing:
    costs = None
