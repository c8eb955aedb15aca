"""What gaps in the evidence do to findings."""

from __future__ import annotations

import pytest

from paceline.diagnosis.evidence_gaps import lower_confidence, weigh, weight
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule_finding import PredictedGain, RuleFinding
from paceline.run.evidence.gap import EvidenceGap, GapKind

GAIN = PredictedGain(100.0, 80.0)


def finding(*ranks: int, id: str = "slow-rank", confidence: float = 0.9) -> RuleFinding:
    return RuleFinding(id, Subject(ranks=ranks), GAIN, confidence)


def gap(kind: GapKind = "cut", *ranks: int, core: bool = True) -> EvidenceGap:
    return EvidenceGap(kind, ranks, "something", core=core)


@pytest.mark.parametrize(
    ("ranks", "of_gap", "core", "left"),
    [
        ((2,), gap("cut", 2), True, 0.7),
        ((2,), gap("cut", 1), True, 0.85),  # a peer's
        ((2,), gap("cut"), True, 0.7),  # of the run
        ((), gap("cut", 1), True, 0.7),  # a finding about all ranks
        ((2,), gap("cut", 2, core=False), False, 0.97),
        ((2,), gap("identity", 1), True, 0.5),  # the numbers of all are in doubt
        ((), gap("identity", 1), True, 0.75),
    ],
)
def test_a_gap_weighs_by_what_it_concerns(ranks: tuple[int, ...], of_gap: EvidenceGap, core: bool, left: float) -> None:
    assert weight(finding(*ranks), of_gap) == pytest.approx(left)


def test_gaps_of_one_kind_count_once_and_kinds_multiply() -> None:
    lowered = lower_confidence(finding(2), [gap("cut", 1), gap("cut", 2), gap("identity", 2)])
    assert lowered.confidence == pytest.approx(0.9 * 0.7 * 0.5)
    assert tuple(map(str, lowered.doubts)) == ("rank 2: something", "rank 2: something")


def test_without_gaps_nothing_changes() -> None:
    assert lower_confidence(finding(2), []) == finding(2)
    incomplete = finding(2, id="data-incomplete", confidence=1.0)
    assert lower_confidence(incomplete, [gap("cut", 2)]) == incomplete


def test_too_little_is_withheld_with_the_reason() -> None:
    weighed = weigh([finding(2), finding(id="jitter")], [gap("identity", 2), gap("conflict", 1)])
    assert [each.id for each in weighed.findings] == ["jitter"]
    assert tuple(map(str, weighed.withheld)) == ("slow-rank of rank 2 is withheld: rank 1: something",)
