"""Data that is missing or incomplete."""

from __future__ import annotations

import pytest

from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, Quantity, RuleFinding
from paceline.diagnosis.rules.data import data_incomplete
from paceline.run.read_warning import ReadWarning
from support.small_cluster import steady_cluster


def found(*warnings: ReadWarning, missing: tuple[int, ...] = (), fewer: tuple[int, ...] = ()) -> list[RuleFinding]:
    made = steady_cluster([[90, 90]] * 4)
    for rank in missing:
        made.ranks.append({"rank": rank, "format": None})
    made.steps = [row for row in made.steps if row["rank"] not in fewer or row["step"] != 1]
    made.steps.append({"rank": 0, "step": None})
    context = made.context()
    context.run.warnings = list(warnings)  # type: ignore[misc]
    return data_incomplete(context)


def test_ranks_without_files() -> None:
    [finding] = found(missing=(9, 7))
    assert (finding.id, finding.confidence, finding.min_severity) == ("data-incomplete", 1.0, "medium")
    assert finding.subject == Subject(ranks=(7, 9)) and finding.gain == PredictedGain(100, 100)
    assert (finding.amount, str(finding.detail)) == (Quantity(2), "")
    assert finding.evidence == (MeasuredValue("ranks_with_missing_data", 2.0, 6.0, "ranks"),)


@pytest.mark.parametrize(
    ("message", "loses"),
    [
        ("cut off after line 3", True),
        ("is empty", True),
        ("cannot be read", True),
        ("is not what its name says", True),
        ("limit of 3 reached", True),
        ("not UTF-8", True),
        ("unknown column", False),
    ],
)
def test_warnings_that_lose_data(message: str, loses: bool) -> None:
    seen = found(ReadWarning(2, "a.csv", message))
    assert [finding.subject.ranks for finding in seen] == ([(2,)] if loses else [])
    assert found(ReadWarning(None, "a.csv", message)) == []


def test_the_first_warning_of_a_loss_is_quoted() -> None:
    [finding] = found(ReadWarning(2, "a.csv", "unknown column"), ReadWarning(1, "b.csv", "is empty"), missing=(7,))
    assert finding.subject.ranks == (1, 7) and str(finding.detail) == "rank 1: b.csv: is empty"
    [finding] = found(ReadWarning(2, "a.csv", "unknown column"), missing=(7,))
    assert str(finding.detail) == "rank 2: a.csv: unknown column"


def test_ranks_with_fewer_steps_than_others() -> None:
    ragged = ReadWarning(None, None, "the recording is ragged")
    [finding] = found(ragged, fewer=(3, 1))
    assert finding.subject.ranks == (1, 3) and finding.min_severity == "medium"
    [finding] = found(ragged)
    assert finding.subject.ranks == () and finding.min_severity == "low"
    assert found(ReadWarning(None, None, "unknown"), fewer=(3,)) == [] == found()
