"""A finding and the public JSON of a diagnosis, schema "paceline.diagnosis/1"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from paceline.advice.knowledge import Entry
from paceline.analysis.replay import Costs

SCHEMA = "paceline.diagnosis/1"
SEVERITIES = ("high", "medium", "low", "info")
RECIPES = frozenset({"pipeline-bubble", "comm-exposed"})
"""Findings that ask for another recipe, whatever they gain: nothing is broken, so they wake nobody up."""
RECIPE_WEIGHT = 0.15
"""They stand behind repairs, unless these gain next to nothing."""


@dataclass(frozen=True)
class Link:
    src: int
    dst: int
    transport: str


@dataclass(frozen=True)
class Subject:
    """Whom a finding is about; global ranks, names as recorded."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    operators: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Gain:
    """Typical step time now and with the fault mended, from the replay."""

    step_ms_now: float
    step_ms_fixed: float
    costs: Costs | None = field(default=None, repr=False, compare=False)
    """What was replayed; None where no replay was."""

    @property
    def percent(self) -> float:
        return 100 * (1 - self.step_ms_fixed / self.step_ms_now) if self.step_ms_now else 0.0


@dataclass(frozen=True)
class Evidence:
    metric: str
    value: float
    peers: float | None
    unit: str


@dataclass(frozen=True)
class Finding:
    """One thing that slows the run. `who`, `amount` and `detail` fill the knowledge base's title."""

    id: str
    subject: Subject
    gain: Gain
    confidence: float
    chronic: bool = True
    amount: str = ""
    detail: str = ""
    evidence: tuple[Evidence, ...] = ()
    at_least: str = "info"
    """Severity that the gain alone cannot lower."""
    at_most: str = "high"
    everybody: bool = False
    """The subject names all ranks there are."""
    entry: Entry | None = None
    """What a rule of the user's own says; None = the knowledge base has it under the id."""

    @property
    def severity(self) -> str:
        """From the gain, within the bounds of the rule."""
        ranked = min(SEVERITIES.index(severity_of(self.gain.percent)), SEVERITIES.index(self.at_least))
        at_most = "low" if self.id in RECIPES else self.at_most
        return SEVERITIES[max(ranked, SEVERITIES.index(at_most))]


def severity_of(percent: float) -> str:
    """Of a gain in per cent of the step."""
    return "high" if percent >= 8 else "medium" if percent >= 2 else "low" if percent >= 0.5 else "info"


@dataclass(frozen=True)
class Diagnosis:
    """Everything a report needs."""

    run: dict[str, Any]
    findings: tuple[Finding, ...] = field(default_factory=tuple)
    residual: float = 0.0


def ranked(findings: list[Finding]) -> tuple[Finding, ...]:
    """By gain; what has none by severity, then by confidence."""

    def order(finding: Finding) -> tuple[float, int, float]:
        gain = finding.gain.percent * (RECIPE_WEIGHT if finding.id in RECIPES else 1.0)
        return -round(gain, 2), SEVERITIES.index(finding.severity), -finding.confidence

    return tuple(sorted(findings, key=order))
