"""The result of a benchmark, schema "paceline.bench/1", the same for every backend.

The fields that ais-bench documents are at the top level; null where nothing was measured:

    throughput_ratio      samples/s, mean over the repetitions of the largest size
    accuracy              mean over the repetitions
    prepare_*_time        checking, uploading, submitting          total_*_time  everything
    proc_*_time           the job, from its backend                dataload_*_time  from the workload (phases.json)
    power, energy, utilisation    see energy.py

All times are ISO 8601 with their zone.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import msgspec

from paceline.bench.spread import mean_interval
from paceline.core.errors import FormatError
from paceline.core.message import Sentence
from paceline.diagnosis.finding import Diagnosis
from paceline.jobs.backend import WorkerUtilisation

LARGEST = 16 << 20
Mode = Literal["cluster", "single_server"]


class ResultPart(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping inside the result; unknown fields of later versions are ignored."""


class RunTimes(ResultPart, frozen=True):
    prepare_start_time: str | None = None
    prepare_end_time: str | None = None
    dataload_start_time: str | None = None
    dataload_end_time: str | None = None
    proc_start_time: str | None = None
    proc_end_time: str | None = None


class EnergyPart(ResultPart, frozen=True):
    """From energy.py; null where the machine has no meter."""

    source: str | None = None
    samples: int = 0
    cards: int | None = None
    average_power: float | None = None
    max_power: float | None = None
    energy_consumption: float | None = None
    resource_util_ratio: float | None = None


class NodeFacts(ResultPart, frozen=True):
    """What a node reported about itself (jobs/node/node_facts.py); empty or null where it reported nothing."""

    host: str = ""
    platform: str = ""
    machine: str = ""
    processor: str = ""
    python: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    cards: int | None = None
    card: str = ""
    driver: str = ""
    firmware: str = ""
    toolkit: str = ""
    """CANN or CUDA, with its version."""
    topology: dict[str, int] = {}
    """How its cards are connected: kind of link (HCCS, NV12, PIX, SYS …) → number of pairs of cards."""
    frameworks: dict[str, str] = {}
    environment: dict[str, str] = {}
    """Variables that change how a training runs; no secrets."""


class EvaluationPart(ResultPart, frozen=True):
    """An evaluation during training, as the workload reported it in evaluations.json."""

    time: str
    accuracy: float
    epoch: float | None = None
    samples: int | None = None


class WorkloadFacts(ResultPart, frozen=True):
    """What was trained, as the workload reported it in workload.json; null where it said nothing."""

    model: str = ""
    framework: str = ""
    precision: str = ""
    seed: int | None = None
    global_batch_size: int | None = None
    train_samples: int | None = None
    """Of one epoch, all ranks together."""
    eval_samples: int | None = None
    tokens_per_sample: float | None = None
    flops_per_sample: float | None = None
    """Forward and backward."""


class Repetition(ResultPart, frozen=True):
    """One run of the job."""

    job_id: str
    throughput: float
    accuracy: float | None
    throughput_list: tuple[float, ...]
    accuracy_list: tuple[float, ...]
    cards: tuple[tuple[float, ...], ...]
    """Throughput of every card, by node."""
    times: RunTimes = RunTimes()
    energy: EnergyPart = EnergyPart()
    nodes: tuple[NodeFacts, ...] = ()
    utilisation: tuple[WorkerUtilisation, ...] = ()
    """Of every node, where the backend's service measures it."""
    time_to_quality: float | None = None
    """Seconds from the job's start to the first evaluation that reached the target accuracy."""
    evaluations: tuple[EvaluationPart, ...] = ()
    workload: WorkloadFacts = WorkloadFacts()


class SpreadPart(ResultPart, frozen=True):
    count: int
    mean: float
    deviation: float | None
    least: float
    most: float
    interval: float | None = None
    """Half of the 95 % confidence interval of the mean; null for a single run."""


def interval_of(part: SpreadPart) -> float | None:
    """Also of results that were written before they had intervals."""
    if part.interval is not None or part.deviation is None:
        return part.interval
    return mean_interval(part.count, part.deviation)


class OutlierPart(ResultPart, frozen=True):
    """A rank, node or repetition that differs from its peers."""

    kind: Literal["rank", "node", "run"]
    name: str
    value: float
    peers: float
    percent: float
    runs: int
    """In how many repetitions it was an outlier."""
    node: int | None = None
    """Of a node, and of a rank where there are several nodes."""
    card: int | None = None
    """Of a rank: its card in the node."""


class ProfilePart(ResultPart, frozen=True):
    """Step time and diagnosis of the recorded run of a size."""

    source: str
    step_ms: float | None
    shares: dict[str, float]
    """Part of the step → share of it; see `paceline diagnose`."""
    diagnosis: Diagnosis | None
    """Schema paceline.diagnosis/1, English; null when it could not be made, and why is in the warnings."""
    titles_zh: tuple[str, ...] = ()
    report: str = ""
    """The HTML report of the recording, relative to this result; empty = none."""


class Measurement(ResultPart, frozen=True):
    """All repetitions of one size of the job."""

    ranks: int
    nodes: int
    per_rank: float
    """Samples per second per rank, mean over ranks and repetitions."""
    throughput: SpreadPart
    accuracy: SpreadPart | None
    repetitions: tuple[Repetition, ...]
    outliers: tuple[OutlierPart, ...] = ()
    efficiency: float | None = None
    """Throughput per rank relative to the smallest size; null without a sweep."""
    efficiency_interval: float | None = None
    """Half of its 95 % confidence interval; null where a size was run once."""
    scaling: Literal["weak", "strong"] = "weak"
    """weak: every rank keeps its batch; strong: the batch of all ranks together stays."""
    tokens_per_second_per_card: float | None = None
    mfu: float | None = None
    """Model FLOPs utilisation, 0 to 1."""
    time_to_quality: float | None = None
    """Mean over the repetitions; null unless all reached the target."""
    profile: ProfilePart | None = None


class ScalingLoss(ResultPart, frozen=True):
    """Which parts of a step grew from the smallest size to this one, in ms per step."""

    ranks: int
    against: int
    step_ms: float
    step_ms_before: float
    grown_ms: dict[str, float]
    sentences: tuple[str, ...]
    sentences_zh: tuple[str, ...]


class BaselineComparison(ResultPart, frozen=True):
    """One metric compared with a baseline; noise as defined in baseline.py."""

    baseline: str
    metric: str
    """With its size: "throughput, 2 ranks"."""
    before: float
    after: float
    noise: float
    percent: float
    verdict: Literal["better", "worse", "same"]
    name: str = ""
    """The metric without its size; empty in results of older versions, as `ranks`."""
    ranks: int | None = None


class ExpectationPart(ResultPart, frozen=True):
    """One threshold of `expect:`."""

    metric: str
    limit: float
    relation: Literal[">=", "<="]
    value: float | None
    passed: bool
    sure: bool
    """False where the 95 % interval contains the threshold."""


class Provenance(ResultPart, frozen=True):
    """What was measured, where and how; `host` and versions are the client's, `nodes` are those of the run."""

    paceline: str
    python: str
    platform: str
    host: str
    cores: int | None
    cards: str | None
    frameworks: dict[str, str]
    commit: str | None
    """Of the code; with "+changes" when the working tree differs."""
    command: tuple[str, ...]
    config: str
    config_sha256: str
    nodes: tuple[NodeFacts, ...] = ()
    image: str = ""
    """Of a container: the image, or the framework engine."""
    flavor: str = ""
    pool: str = ""


class BenchResult(msgspec.Struct, frozen=True, kw_only=True, tag="paceline.bench/1", tag_field="schema"):
    id: str
    name: str
    result: Literal["OK", "FAILED"]
    mode: Mode
    backend: str

    throughput_ratio: float | None
    accuracy: float | None
    average_power: float | None
    max_power: float | None
    energy_consumption: float | None
    efficientcy: float | None
    resource_util_ratio: float | None
    prepare_start_time: str | None
    prepare_end_time: str | None
    dataload_start_time: str | None
    dataload_end_time: str | None
    proc_start_time: str | None
    proc_end_time: str | None
    total_start_time: str | None
    total_end_time: str | None

    measurements: tuple[Measurement, ...]
    losses: tuple[ScalingLoss, ...] = ()
    comparisons: tuple[BaselineComparison, ...] = ()
    verdict: Literal["PASS", "FAIL"] | None = None
    """Whether it meets `expect:`; null without it."""
    expectations: tuple[ExpectationPart, ...] = ()
    target_accuracy: float | None = None
    provenance: Provenance
    warnings: tuple[str, ...] = ()
    warnings_said: tuple[Sentence, ...] = ()
    """The same as keys and values, to be shown in any language; empty in results of older versions."""

    @property
    def largest(self) -> Measurement:
        return self.measurements[-1]


_DOCUMENTED = (
    "accuracy",
    "average_power",
    "dataload_end_time",
    "dataload_start_time",
    "efficientcy",
    "energy_consumption",
    "max_power",
    "prepare_end_time",
    "prepare_start_time",
    "proc_end_time",
    "proc_start_time",
    "resource_util_ratio",
    "throughput_ratio",
    "total_end_time",
    "total_start_time",
)


def train_result_info(result: BenchResult) -> dict[str, str | float | None]:
    """ais-bench's object with its types: scores as text, times as "YYYY-mm-dd HH:MM:SS" (UTC)."""
    info: dict[str, str | float | None] = {}
    for name in _DOCUMENTED:
        value = getattr(result, name)
        if name in ("accuracy", "throughput_ratio") and value is not None:
            value = str(value)
        elif name.endswith("_time") and value is not None:
            value = datetime.fromisoformat(value).astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
        info[name] = value
    return info


def encode(result: BenchResult) -> str:
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"


def decode(data: bytes, called: str) -> BenchResult:
    """Decode and validate a result; `called` names it in errors."""
    if len(data) > LARGEST:
        raise FormatError(f"{called}: larger than {LARGEST:,} bytes, not a benchmark result")
    try:
        result = msgspec.json.decode(data, type=BenchResult)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"{called}: not a benchmark result (paceline.bench/1): {error}") from error
    if not all(each.repetitions and each.ranks > 0 for each in result.measurements) or not result.measurements:
        raise FormatError(f"{called}: the benchmark result has no measurement")
    for name in _DOCUMENTED:
        value = getattr(result, name)
        if isinstance(value, str) and parse_iso_time(value) is None:
            raise FormatError(f"{called}: {name}: {value[:60]!r} is not a time")
    return result


def read_result(path: Path) -> BenchResult:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}", file=path) from error
    return decode(data, str(path))


def parse_iso_time(text: str) -> str | None:
    """A time in ISO 8601 with its zone (this machine's, if it has none); None for other texts.

    >>> parse_iso_time("2026-11-17T02:24:27Z")
    '2026-11-17T02:24:27+00:00'
    """
    try:
        found = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        return (found if found.tzinfo else found.astimezone()).isoformat()
    except (ValueError, OverflowError):
        return None


def to_iso_time(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601.

    >>> to_iso_time(0.5)
    '1970-01-01T00:00:00.500+00:00'
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
