"""What holds the others up, by the scores or by the recorded run: in synchronous training scores alone cannot show it."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.bench.result import Measurement, OutlierPart
from paceline.core.i18n import Language, text
from paceline.diagnosis.finding import Finding

LEAST_GAIN = 5.0
"""Percent of the step that fixing it would save; less is not worth a verdict."""


@dataclass(frozen=True)
class Straggler:
    outlier: OutlierPart | None = None
    finding: Finding | None = None
    title_zh: str = ""
    host: str = ""

    def name(self, language: Language) -> str:
        """Short, for a headline."""
        if self.outlier is not None:
            kind = text(f"bench.straggler_{self.outlier.kind}", language, name=outlier_name(self.outlier, language))
            return f"{kind}{f' ({self.host})' if self.host else ''} {self.outlier.percent:+.0f} %"
        assert self.finding is not None
        title = self.title_zh if language == "zh" and self.title_zh else self.finding.title
        return f"{title} (−{self.finding.gain.percent:.0f} %)"


def stragglers(size: Measurement) -> list[Straggler]:
    """Ranks and nodes that are persistently slow, and findings of the profile that blame a few ranks or hosts."""
    found = [Straggler(outlier=each, host=_host(size, each)) for each in size.outliers if each.kind != "run"]
    profile = size.profile
    if profile is None or profile.diagnosis is None:
        return found
    titles = [*profile.titles_zh, *[""] * len(profile.diagnosis.findings)]
    return found + [
        Straggler(finding=each, title_zh=title)
        for each, title in zip(profile.diagnosis.findings, titles, strict=False)
        if _blames_a_few(each, size)
    ]


def _blames_a_few(finding: Finding, size: Measurement) -> bool:
    """A minority, or one of two: a fault of all of them is no straggler."""
    ranks, hosts = len(finding.subject.ranks), len(finding.subject.hosts)
    few = 0 < ranks <= size.ranks / 2 or (not ranks and 0 < hosts <= size.nodes / 2)
    return few and (finding.gain.percent or 0.0) >= LEAST_GAIN


def _host(size: Measurement, outlier: OutlierPart) -> str:
    nodes = size.repetitions[-1].nodes
    return nodes[outlier.node].host if outlier.node is not None and outlier.node < len(nodes) else ""


def outlier_name(outlier: OutlierPart, language: Language) -> str:
    """Of a card, with its node where there are several."""
    if outlier.node is None or outlier.card is None:
        return outlier.name
    return text("bench.node_and_card", language, node=outlier.node, card=outlier.card)
