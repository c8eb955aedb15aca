"""The public diagnosis, schema "paceline.diagnosis/1": these structs are the JSON that is written, served and read back.

Fields may be added; those that exist keep their meaning. `paceline schema diagnosis` prints the JSON Schema.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.core.errors import FormatError

SCHEMA = "paceline.diagnosis/1"
Severity = Literal["high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")


class DirectedLink(msgspec.Struct, frozen=True):
    """A connection from one rank to another."""

    src: int
    dst: int
    transport: str
    """RDMA, HCCS, PCIE …; empty where the recording does not name it."""


class Subject(msgspec.Struct, frozen=True):
    """What a finding is about: global ranks, names as recorded. All lists empty = the whole run."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    links: tuple[DirectedLink, ...] = ()
    operators: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


class Gain(msgspec.Struct, frozen=True):
    """Typical step time now and with the cause fixed, predicted by replay."""

    step_ms_now: float
    step_ms_fixed: float
    percent: float
    """Less time per step, in per cent of the step now."""
    speedup: float | None = None
    """step_ms_now / step_ms_fixed; null where that is undefined."""


class Evidence(msgspec.Struct, frozen=True):
    """One measured value, beside that of the peers where there are any."""

    metric: str
    """Name of what was measured, in the language of the diagnosis."""
    value: float | None
    peers: float | None
    unit: str
    key: str = ""
    """The same name in every language and version, for programs: self_time, bandwidth …"""
    change: float | None = None
    """value / peers - 1; null for shares and counts, and where there are no peers."""


Pattern = Literal["always", "since", "grows", "until", "every", "some", "once"]


class When(msgspec.Struct, frozen=True):
    """In which steps something shows."""

    pattern: Pattern
    """always; since or until a step; grows: since a step, and more and more; every `every`-th step; some; once."""
    steps: tuple[int, ...]
    """Those in which it shows."""
    of: int
    """How many steps were looked at."""
    every: int | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that slows the run."""

    id: str
    severity: Severity
    confidence: float
    """0 to 1."""
    chronic: bool
    """True: it happens in most steps; false: only in the steps that the subject names."""
    when: When | None = None
    """The time pattern; null where it was not examined."""
    subject: Subject
    gain: Gain
    title: str
    evidence: tuple[Evidence, ...]
    advice: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    """Gaps in the recording that lowered the confidence, gravest first."""
    see: str
    """kb/ID: explained by `paceline kb ID`; own/ID: by the custom rule that reported it."""


class StepTimes(msgspec.Struct, frozen=True):
    """Over the steps that were diagnosed, ms; null where no step was measured."""

    median: float | None
    min: float | None
    max: float | None


UNEXPLAINED = "unexplained"
NOTABLE_PERCENT = 3.0
"""Below this share of the step, what is fixable or unexplained is nothing to speak of."""


class LossPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one cause costs, ms per step."""

    cause: str
    """Id of a finding, or uneven, communication, bubble, input, host, exposed, unexplained: see docs/diagnosis.md."""
    ms: float
    """Its share of the loss, the mean over the steps; the shares add up. Below 0 where it hides behind others."""
    fixable: bool
    """False: what healthy communication and the schedule cost, and what is unexplained."""
    finding: int | None = None
    """Its place among the findings, from 0; null for what no finding names."""
    alone_ms: float | None = None
    """What fixing this alone would save; differs from the share where faults hide each other."""
    by_step: tuple[float, ...] = ()
    """The share in each of the diagnosed steps."""

    @property
    def is_open(self) -> bool:
        """Something to look at: it is fixable, or unexplained."""
        return self.fixable or self.cause == UNEXPLAINED


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was diagnosed."""

    source: str
    formats: tuple[str, ...]
    ranks: int
    hosts: int
    """0 where the recording names none."""
    steps: tuple[int, ...]
    step_ms: StepTimes
    mfu: float | None = None
    """Model FLOPs utilisation, median over ranks; null where the cards' peak rate or their work is unknown."""
    missing_ranks: tuple[int, ...]
    warnings: tuple[str, ...]
    withheld: tuple[str, ...] = ()
    """Findings that the evidence contradicts too much to be shown, with the reason; also among the warnings."""
    best_step_ms: float | None = None
    """The mean step if nothing were lost; null where nothing was measured."""
    mean_step_ms: float | None = None
    """best_step_ms + the sum of `loss`."""
    loss: tuple[LossPart, ...] = ()
    """Where the rest of the mean step goes, cause by cause."""
    open_percent: float | None = None
    """What of the mean step is fixable or unexplained; null where nothing was measured."""


class ReplayCheck(msgspec.Struct, frozen=True):
    """How well the model behind the gains explains and predicts the run."""

    residual_percent: float = 0.0
    """Replayed over measured step time, minus 1: near 0 by construction, so it proves nothing."""
    prediction_error_percent: float | None = None
    """Each step predicted from what was recorded of it and a graph learnt from the other steps: median error over the steps
    (replay/prediction.py); null with fewer than 3 steps."""
    worst_prediction_error_percent: float | None = None
    """The same of the step that was predicted worst."""
    level: Literal["operations", "kernels", "collectives"] = "collectives"
    """The finest the graph was built of; collectives: a coarse model, which cannot tell work from unrecorded waiting."""


class WorkerSlowdown(msgspec.Struct, frozen=True):
    """How much of the slowdown one worker alone could cause."""

    rank: int
    stage: int
    replica: int
    slowdown: float
    """S with only this worker's stage, or only its replica, as recorded; the smaller of the two."""


class StudyNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the OSDI'25 straggler study, for traces that name every operation (replay/straggler_study.py)."""

    step_ms: float
    """T: mean step of the replay without launch delays."""
    ideal_ms: float
    """T ideal: the same with computing at its mean and transfers at their median."""
    slowdown: float
    """S = T / T ideal."""
    worst_workers_share: float | None
    """M_W: share of T - T ideal that the worst 3 % of the workers explain; null where nothing is lost."""
    last_stage_share: float | None
    """M_S: the same of the last stage."""
    workers: tuple[WorkerSlowdown, ...]
    """Every worker, the one that could cause most first."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, tag=SCHEMA, tag_field="schema"):
    """A run and what slows it, most rewarding finding first, in one language."""

    run: RunFacts
    replay: ReplayCheck = ReplayCheck()
    study: StudyNumbers | None = None
    """Null unless the source is a trace of the straggler study's format."""
    findings: tuple[Finding, ...]


def decode_diagnosis(content: bytes, name: str) -> Diagnosis:
    """A diagnosis.json read back; FormatError says which field of the file `name` is wrong."""
    try:
        return msgspec.json.decode(content, type=Diagnosis)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{name}: not a diagnosis (schema {SCHEMA}): {error}") from error
