"""Gain, severity and order of findings."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from paceline.diagnosis.finding import RunFacts, StepTimes, Subject
from paceline.diagnosis.rule_finding import (
    Examination,
    MeasuredValue,
    PredictedGain,
    Quantity,
    RuleFinding,
    rank_findings,
    severity_of,
)
from paceline.replay.replay import Costs


def finding(id: str = "slow-rank", percent: float = 0.0, confidence: float = 0.9, **more: Any) -> RuleFinding:
    return RuleFinding(id, Subject(), PredictedGain(100, 100 - percent), confidence, **more)


@pytest.mark.parametrize(
    ("quantity", "shown"),
    [
        (Quantity(12.4), "12"),
        (Quantity(12.6, "%"), "13 %"),
        (Quantity(1234.56, "MHz", ",.1f"), "1,234.6 MHz"),
    ],
)
def test_a_quantity_is_shown_with_its_unit(quantity: Quantity, shown: str) -> None:
    assert str(quantity) == shown


def test_gain_in_per_cent_of_the_step_and_as_a_speedup() -> None:
    gain = PredictedGain(120, 90)
    assert gain.percent == 25  # 30 of 120 ms
    assert gain.speedup == 1.333  # 120 / 90
    assert PredictedGain(0, 0).percent == 0 and PredictedGain(0, 0).speedup is None
    assert PredictedGain(5, 0).speedup is None and PredictedGain(5, 0.5).speedup == 10


def test_gains_are_equal_when_their_times_are_whatever_was_replayed() -> None:
    costs = Costs(*[None] * 3)  # type: ignore[list-item]
    assert PredictedGain(1, 1, costs) == PredictedGain(1, 1)
    assert "Costs" not in repr(PredictedGain(1, 1, costs))


@pytest.mark.parametrize(
    ("percent", "severity"),
    [
        (8.0, "high"),
        (7.99, "medium"),
        (2.0, "medium"),
        (1.99, "low"),
        (0.5, "low"),
        (0.49, "info"),
        (0.0, "info"),
    ],
)
def test_severity_comes_from_the_gain(percent: float, severity: str) -> None:
    assert severity_of(percent) == severity
    assert finding(percent=percent + 0.001).severity == severity


@pytest.mark.parametrize(
    ("percent", "bounds", "severity"),
    [
        (0.0, {"min_severity": "medium"}, "medium"),
        (20.0, {"min_severity": "medium"}, "high"),
        (20.0, {"max_severity": "low"}, "low"),
        (0.0, {"max_severity": "low"}, "info"),
        (0.0, {"min_severity": "high", "max_severity": "medium"}, "medium"),
    ],
)
def test_a_rule_bounds_the_severity(percent: float, bounds: dict[str, Any], severity: str) -> None:
    assert finding(percent=percent, **bounds).severity == severity


@pytest.mark.parametrize("recipe", ["pipeline-bubble", "comm-exposed"])
def test_another_recipe_is_never_above_low(recipe: str) -> None:
    assert finding(recipe, 30.0).severity == "low"
    assert finding(recipe, 30.0, min_severity="high").severity == "low"
    assert finding(recipe, 0.1).severity == "info"


def test_the_largest_expected_gain_comes_first_then_severity_then_confidence() -> None:
    small, large = finding(percent=1), finding(percent=3)
    severe, sure, unsure = finding(percent=1, min_severity="high"), finding(percent=2, confidence=1), finding(percent=2)
    assert rank_findings([small, unsure, severe, large, sure]) == (large, sure, unsure, severe, small)


def test_a_doubtful_gain_counts_as_much_as_is_expected_of_it() -> None:
    sure, doubtful = finding(percent=5, confidence=0.9), finding(percent=8, confidence=0.5)  # 4.5 and 4
    assert rank_findings([doubtful, sure]) == (sure, doubtful)


def test_expected_gains_within_a_hundredth_of_a_per_cent_are_equal() -> None:
    sure, unsure = finding(percent=1.0, confidence=0.9), finding(percent=1.806, confidence=0.5)  # 0.9 and 0.903
    assert rank_findings([unsure, sure]) == (sure, unsure)
    assert rank_findings([sure, finding(percent=1.02)])[1] == sure


def test_recipes_come_behind_repairs_that_are_worth_a_word() -> None:
    recipe, repair, crumb = finding("comm-exposed", 20.0), finding(percent=0.6), finding(percent=0.4)
    assert rank_findings([crumb, recipe, repair]) == (repair, recipe, crumb)
    raised = finding(percent=0.0, min_severity="medium")
    assert rank_findings([recipe, raised]) == (raised, recipe)


def test_a_finding_is_chronic_and_about_some_ranks_unless_it_says_otherwise() -> None:
    plain = finding()
    assert plain.chronic and not plain.covers_all_ranks
    assert (plain.min_severity, plain.max_severity) == ("info", "high")


@pytest.mark.parametrize(
    "value",
    [
        Quantity(1),
        MeasuredValue("k", 1),
        PredictedGain(1, 1),
        finding(),
        Examination(
            RunFacts(
                source="",
                formats=(),
                ranks=0,
                hosts=0,
                steps=(),
                step_ms=StepTimes(0, 0, 0),
                missing_ranks=(),
                warnings=(),
            ),
            (),
            0.0,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_rules_report_cannot_be_changed_afterwards(value: object) -> None:
    name = next(iter(vars(value)))
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, 0)
