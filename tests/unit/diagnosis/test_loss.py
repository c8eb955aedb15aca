"""The loss of a run: parts that add up to what the mean step loses, and what may be said when nothing is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.diagnose import examine
from paceline.diagnosis.finding import RunFacts, StepTimes, Subject
from paceline.diagnosis.loss import with_loss
from paceline.diagnosis.rule_finding import PredictedGain, RuleFinding
from paceline.replay.fixes import scale_self_time
from paceline.replay.replay import Costs
from support.small_cluster import SmallCluster, steady_cluster

FACTS = RunFacts(
    source="run", formats=(), ranks=4, hosts=1, steps=(1,), step_ms=StepTimes(1, 1, 1), missing_ranks=(), warnings=()
)


def faster(context: DiagnosisContext, rank: int, time: float) -> Costs:
    """The costs with this rank at this self time, ms."""
    factors = np.ones(context.self_time.shape)
    factors[rank] = time * 1e6 / context.self_time[rank]
    return scale_self_time(context.replay, context.replay.costs, factors)


def finding(context: DiagnosisContext, costs: Costs, id: str = "slow-rank") -> RuleFinding:
    return RuleFinding(id, Subject(), context.gain(costs), 0.9)


def parts(facts: RunFacts) -> dict[str, float]:
    return {part.cause: part.ms for part in facts.loss if part.ms}


def test_a_slow_rank_costs_what_all_wait_for_it() -> None:
    context = steady_cluster([[150] * 3, [100] * 3, [100] * 3, [100] * 3], transfer=10).context()
    facts = with_loss(FACTS, context, [finding(context, faster(context, 0, 100))])
    assert facts.mean_step_ms == 160 and facts.best_step_ms == 100
    assert parts(facts) == {"slow-rank": 50, "communication": 10}
    assert facts.loss[0].finding == 0 and facts.loss[0].alone_ms == 50
    assert facts.loss[0].by_step == (50, 50, 50)


def test_two_faults_that_hide_each_other_share_what_they_cost_together() -> None:
    """Ranks of 150 and 130 ms: alone, the first saves 20 and the second nothing; together 50."""
    context = steady_cluster([[150] * 3, [130] * 3, [100] * 3, [100] * 3], transfer=0).context()
    both = [finding(context, faster(context, rank, 100)) for rank in (0, 1)]
    facts = with_loss(FACTS, context, both)
    assert [(part.ms, part.alone_ms) for part in facts.loss[:2]] == [(35, 20), (15, 0)]
    assert facts.mean_step_ms == 150 and facts.best_step_ms == 100


def test_every_part_has_its_place() -> None:
    """Two stages, messages of 2 ms; the first step of rank 0 is 12 ms longer, and all wait 4 ms for input."""
    cluster = SmallCluster(2, stage=[0, 1])
    for step in range(4):
        cluster.work([34 + (12 if step == 1 else 0), 4])
        cluster.send(0, 1, 2)
        cluster.work([0, 30])
        cluster.meet([0, 1], 5)
        cluster.end_step(data_wait=[4, 4])
    context = cluster.context()
    facts = with_loss(FACTS, context, [])
    found = parts(facts)
    assert facts.mean_step_ms == pytest.approx(
        (facts.best_step_ms or 0) + sum(part.ms for part in facts.loss), abs=1e-9
    )
    assert found["uneven"] == 3  # 12 ms in one of four steps
    assert found["communication"] == 7
    assert found["bubble"] == pytest.approx(64 - (34 + 34) / 2)
    assert found["input"] == 4
    assert facts.best_step_ms == 30


def test_recipes_and_findings_without_costs_are_no_faults() -> None:
    context = steady_cluster([[150] * 3, [100] * 3, [100] * 3], transfer=10).context()
    costs = faster(context, 0, 100)
    recipe, priceless = finding(context, costs, "comm-exposed"), finding(context, costs)
    priceless = replace(priceless, gain=PredictedGain(160, 110))
    facts = with_loss(FACTS, context, [recipe, priceless])
    assert [part.finding for part in facts.loss] == [None] * 6


def test_open_is_what_is_fixable_or_unexplained() -> None:
    """Communication and bubbles are the recipe's; 12 ms in one of four steps are uneven: 3 of 113 ms."""
    context = steady_cluster([[112, 100, 100, 100]] + [[100] * 4] * 7, transfer=10).context()
    facts = with_loss(FACTS, context, [])
    assert parts(facts) == {"uneven": 3, "communication": 10}
    assert facts.open_percent == round(100 * 3 / 113, 2)


def test_a_diagnosis_carries_its_loss() -> None:
    cluster = steady_cluster([[150] * 4] + [[100] * 4] * 7, transfer=10)
    found = examine(cluster.run())
    assert found.run.loss[0].cause == found.findings[0].id == "slow-rank"
    total = (found.run.best_step_ms or 0) + sum(part.ms for part in found.run.loss)
    assert found.run.mean_step_ms == pytest.approx(total, abs=1e-9)


def test_where_no_collective_was_recorded_communication_is_not_left_as_computing() -> None:
    """Steps of 100 and 80 ms, so that nobody is known to wait; 30 ms of computing and 40 of communication, says the table."""
    cluster = SmallCluster(2)
    for _ in range(3):
        cluster.work([100, 80])
        cluster.end_step(computing=30, exposed=40)
    facts = with_loss(FACTS, cluster.context(), [])
    assert parts(facts)["exposed"] == 40 and not facts.loss[-2].fixable
    assert facts.mean_step_ms == pytest.approx((facts.best_step_ms or 0) + sum(part.ms for part in facts.loss))
