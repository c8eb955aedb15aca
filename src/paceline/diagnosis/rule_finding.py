"""What a rule reports: a finding with typed values, before it is put into words of a language (see render.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from paceline.core.message import Sentence
from paceline.diagnosis.finding import SEVERITIES, RunFacts, Severity, StudyNumbers, Subject, When
from paceline.diagnosis.knowledge import KnowledgeEntry
from paceline.metrics.timeline.rank_timeline import Level
from paceline.replay.prediction import Prediction
from paceline.replay.replay import Costs

NetworkArea = Literal["", "pair", "cut", "board", "fabric"]
"""Between two hosts, between some hosts and the others, inside a host, everywhere."""
RECIPES = frozenset({"pipeline-bubble", "comm-exposed"})
"""Findings that ask for another training recipe. Nothing is broken, so they are never above `low`, whatever they gain."""
MEDIUM_PERCENT, HIGH_PERCENT, LOW_PERCENT = 2.0, 8.0, 0.5
"""Gains from which a finding has this severity, in per cent of the step."""


@dataclass(frozen=True)
class Quantity:
    """A number of a title, with its unit."""

    value: float
    unit: str = ""
    format: str = ".0f"

    def __str__(self) -> str:
        return f"{self.value:{self.format}} {self.unit}".rstrip()


@dataclass(frozen=True)
class MeasuredValue:
    """Evidence: a measured value and that of the peers.

    The name is the text `diagnosis.evidence.KEY` of the catalogue, filled with `values`; a custom rule gives its own as
    `name`. Units that are words (`diagnosis.unit.UNIT`) are translated, symbols are not.
    """

    key: str
    value: float
    peers: float | None = None
    unit: str = ""
    values: Mapping[str, object] = field(default_factory=dict)
    name: str = ""


def slow_steps(slow: int, steps: int) -> MeasuredValue:
    """In how many of the steps something shows."""
    return MeasuredValue("slow_steps", slow, values={"all": steps})


@dataclass(frozen=True)
class PredictedGain:
    """Typical step time now and with the cause fixed, ms."""

    step_ms_now: float
    step_ms_fixed: float
    costs: Costs | None = field(default=None, repr=False, compare=False)
    """The costs that were replayed; None where the gain was not predicted by a replay."""

    @property
    def percent(self) -> float:
        return 100 * (1 - self.step_ms_fixed / self.step_ms_now) if self.step_ms_now else 0.0

    @property
    def speedup(self) -> float | None:
        return round(self.step_ms_now / self.step_ms_fixed, 3) if self.step_ms_fixed > 0 else None


@dataclass(frozen=True)
class RuleFinding:
    """One thing that slows the run. The title of its knowledge base entry is filled with subject, `amount` and `detail`."""

    id: str
    subject: Subject
    gain: PredictedGain
    confidence: float
    chronic: bool = True
    when: When | None = None
    """The time pattern, where it was examined."""
    amount: Quantity | None = None
    detail: Quantity | Sentence | None = None
    """A second value of the title; a text only where it is quoted from the recording."""
    evidence: tuple[MeasuredValue, ...] = ()
    min_severity: Severity = "info"
    """Not below this, however small the gain."""
    max_severity: Severity = "high"
    covers_all_ranks: bool = False
    """The subject names every rank of the run."""
    doubts: tuple[Sentence, ...] = ()
    """Why its confidence was lowered: gaps in the evidence, gravest first."""
    area: NetworkArea = ""
    """Which part of a network it is about."""
    entry: KnowledgeEntry | None = None
    """Texts of a custom rule; None = the knowledge base has them under the id."""

    @property
    def severity(self) -> Severity:
        """From the gain, within the bounds of the rule."""
        raised = min(SEVERITIES.index(severity_of(self.gain.percent)), SEVERITIES.index(self.min_severity))
        most = "low" if self.id in RECIPES else self.max_severity
        return SEVERITIES[max(raised, SEVERITIES.index(most))]


def severity_of(percent: float) -> Severity:
    """Of a gain in per cent of the step."""
    if percent >= HIGH_PERCENT:
        return "high"
    if percent >= MEDIUM_PERCENT:
        return "medium"
    return "low" if percent >= LOW_PERCENT else "info"


def rank_findings(findings: list[RuleFinding]) -> tuple[RuleFinding, ...]:
    """Repairs worth a word, then recipes, then the rest; within these the largest expected gain (gain × confidence) first.

    Equal ones by severity, then by confidence.
    """

    def order(finding: RuleFinding) -> tuple[int, float, int, float]:
        place = 1 if finding.id in RECIPES else 2 if finding.severity == "info" else 0
        expected = round(finding.gain.percent * finding.confidence, 2)
        return place, -expected, SEVERITIES.index(finding.severity), -finding.confidence

    return tuple(sorted(findings, key=order))


@dataclass(frozen=True)
class Examination:
    """A diagnosis before it is put into words: what was examined and what all rules found, ranked."""

    run: RunFacts
    findings: tuple[RuleFinding, ...]
    residual: float
    """Replayed over measured step time, minus 1."""
    study: StudyNumbers | None = None
    prediction: Prediction | None = None
    """How well steps are predicted from each other; None with too few steps."""
    level: Level = "collectives"
    """The finest the graph was built of."""
    platform: frozenset[str] = frozenset()
    """Device and framework, as in platform.py."""
    warnings: tuple[Sentence, ...] = ()
    withheld: tuple[Sentence, ...] = ()
    """Both for the facts of the run, where they are put into words too."""
