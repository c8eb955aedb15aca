"""What gaps in the evidence do to findings: they lower its confidence, say why, and withhold what is left of too little.

    confidence = confidence of the rule × product over the kinds of gap of their weights

A gap of ranks that a finding does not name counts half; a gap in tables that findings are not built on counts little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from paceline.core.message import Sentence, message, ranks_named, said_at
from paceline.diagnosis.rule_finding import RuleFinding
from paceline.run.evidence.gap import EvidenceGap
from paceline.run.read_warning import GapKind

WEIGHTS: Mapping[GapKind, float] = MappingProxyType(
    {
        "identity": 0.5,
        "conflict": 0.4,
        "disagreement": 0.6,
        "lost": 0.7,
        "cut": 0.7,
        "counts": 0.7,
        "missing": 0.8,
        "odd": 0.95,
    }
)
"""Share of the confidence that is left where a gap of this kind concerns what a finding names."""
WHO = frozenset({"identity", "conflict"})
"""Kinds that question who is who: they concern every finding that names someone, whichever rank they are of."""
OTHER_TABLES = 0.97
"""…and where it concerns tables that findings are not built on."""
WITHHELD = 0.25
"""A finding that gaps leave with less confidence than this is not reported, unless a custom rule made it."""
_MOST_DOUBTS = 3


@dataclass(frozen=True)
class Weighed:
    """Findings with the confidence that the evidence allows, and what was withheld, with the reason."""

    findings: tuple[RuleFinding, ...]
    withheld: tuple[Sentence, ...]


def weigh(findings: Sequence[RuleFinding], gaps: Sequence[EvidenceGap]) -> Weighed:
    """Lower the confidence of findings by the gaps in what they are built on."""
    weighed = [lower_confidence(finding, gaps) for finding in findings]
    withheld = [finding for finding in weighed if _is_withheld(finding)]
    return Weighed(
        tuple(finding for finding in weighed if finding not in withheld),
        tuple(message("withheld", id=each.id, names=_names(each), doubt=each.doubts[0]) for each in withheld),
    )


def lower_confidence(finding: RuleFinding, gaps: Sequence[EvidenceGap]) -> RuleFinding:
    """One finding; that data is missing is no less sure because data is missing."""
    if not gaps or finding.id == "data-incomplete":
        return finding
    by_kind: dict[GapKind, tuple[float, EvidenceGap]] = {}
    for gap in gaps:
        left = weight(finding, gap)
        if gap.kind not in by_kind or left < by_kind[gap.kind][0]:
            by_kind[gap.kind] = left, gap
    confidence = finding.confidence
    for left, _ in by_kind.values():
        confidence *= left
    gravest = sorted(by_kind.values(), key=lambda each: each[0])[:_MOST_DOUBTS]
    doubts = (*finding.doubts, *(_doubt(gap) for _, gap in gravest))
    return replace(finding, confidence=round(confidence, 4), doubts=doubts)


def weight(finding: RuleFinding, gap: EvidenceGap) -> float:
    """Share of the confidence that this gap leaves."""
    full = WEIGHTS[gap.kind] if gap.core else max(WEIGHTS[gap.kind], OTHER_TABLES)
    named = bool(finding.subject.ranks or finding.subject.hosts or finding.subject.links)
    if gap.kind in WHO:
        return full if named else (1 + full) / 2
    concerned = not gap.ranks or not named or bool(set(gap.ranks) & set(finding.subject.ranks))
    return full if concerned else (1 + full) / 2


def _is_withheld(finding: RuleFinding) -> bool:
    return bool(finding.doubts) and finding.confidence < WITHHELD and finding.entry is None


def _names(finding: RuleFinding) -> Sentence:
    return ranks_named(finding.subject.ranks) if finding.subject.ranks else message("the_run")


def _doubt(gap: EvidenceGap) -> Sentence:
    return said_at(ranks_named(gap.ranks) if gap.ranks else None, gap.said)
