"""Faults that a larger one masks."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.masked_faults import price_after_fixing_top
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, RuleFinding
from paceline.replay.fixes import scale_self_time
from support.small_cluster import steady_cluster


def context(*self_times: float) -> DiagnosisContext:
    """A step lasts as long as the slowest rank: 0 is the culprit, others are masked by it."""
    return steady_cluster([[time] * 2 for time in self_times], transfer=0).context()


def fixed(context: DiagnosisContext, rank: int, time: float, id: str = "slow-rank", **more: object) -> RuleFinding:
    """A finding that brings a rank to this self time."""
    factors = np.ones(context.self_time.shape)
    factors[rank] = time * 1e6 / context.self_time[rank]
    gain = context.gain(scale_self_time(context.replay, context.replay.costs, factors))
    return RuleFinding(id, Subject(ranks=(rank,)), gain, 0.9, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("second", "severity", "measured"),
    [
        (120, "high", (100, 120)),  # 20 of 120 ms
        (105, "medium", (100, 105)),
        (102.1, "medium", (100, 102.1)),
        (102, "info", None),  # 1.96 %
    ],
)
def test_a_masked_fault_is_worth_what_it_gains_once_the_top_one_is_fixed(
    second: float, severity: str, measured: tuple[float, float] | None
) -> None:
    run = context(150, second, 100)
    top, masked = fixed(run, 0, 100), fixed(run, 1, 100)
    assert masked.gain.percent == 0
    priced = price_after_fixing_top(run, [masked, top])
    assert priced[1] is top and priced[0].severity == severity
    evidence = (MeasuredValue("step_after_first_fix", *measured, "ms"),) if measured else ()
    assert priced[0].evidence == evidence and priced[0].gain is masked.gain


def test_the_evidence_comes_behind_that_of_the_rule_and_a_severity_of_its_own_stays() -> None:
    run = context(150, 105.0004, 100.0004, 100)
    own = MeasuredValue("self_time", 1.0)
    masked = fixed(run, 1, 100, min_severity="high", evidence=(own,))
    _, priced = price_after_fixing_top(run, [fixed(run, 0, 100), masked])
    assert priced.min_severity == "high"
    assert priced.evidence == (own, MeasuredValue("step_after_first_fix", 100.0, 105.0, "ms"))


@pytest.mark.parametrize(("top", "is_priced"), [(102.1, True), (101.9, False)])
def test_only_a_top_finding_that_gains_2_per_cent_masks_others(top: float, is_priced: bool) -> None:
    # What is masked gains nothing alone, and 90 of 100 ms once the top one is fixed.
    run = context(top, 100, 10)
    findings = price_after_fixing_top(run, [fixed(run, 0, 10), fixed(run, 1, 10)])
    assert bool(findings[1].evidence) is is_priced


@pytest.mark.parametrize(("alone", "is_priced"), [(1.9, True), (2.1, False)])
def test_a_finding_that_gains_2_per_cent_by_itself_is_not_masked(alone: float, is_priced: bool) -> None:
    run = context(150, 130, 100)
    masked = fixed(run, 1, 100)
    own = RuleFinding("x", Subject(), PredictedGain(100, 100 - alone, masked.gain.costs), 0.9)
    _, priced = price_after_fixing_top(run, [fixed(run, 0, 100), own])
    assert bool(priced.evidence) is is_priced


@pytest.mark.parametrize(("second", "is_priced"), [(103.1, True), (102.9, False)])
def test_it_must_gain_twice_what_it_gains_alone(second: float, is_priced: bool) -> None:
    run = context(150, second, 100)  # 3.0 or 2.8 % once the top one is fixed
    own = RuleFinding("x", Subject(), PredictedGain(100, 98.55, fixed(run, 1, 100).gain.costs), 0.9)  # 1.45 % alone
    _, priced = price_after_fixing_top(run, [fixed(run, 0, 100), own])
    assert bool(priced.evidence) is is_priced


def test_recipes_and_findings_without_a_replay_neither_mask_nor_are_masked() -> None:
    run = context(150, 120, 100)
    masked = fixed(run, 1, 100)
    recipe = fixed(run, 0, 100, "comm-exposed")
    unpriced = RuleFinding("memory-pressure", Subject(), PredictedGain(100, 50), 0.9)
    findings = [masked, recipe, unpriced]
    assert price_after_fixing_top(run, findings) is findings
    masked_recipe = fixed(run, 1, 100, "comm-exposed")
    no_costs = RuleFinding("memory-pressure", Subject(), PredictedGain(100, 100), 0.9)
    top = fixed(run, 0, 100)
    assert price_after_fixing_top(run, [top, masked_recipe, no_costs]) == [top, masked_recipe, no_costs]
    assert price_after_fixing_top(run, []) == []
