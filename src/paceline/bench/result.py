"""The result of a benchmark, schema "paceline.bench/1": one for every backend, written, read, sent and remembered.

The documented fields of ais-bench's result stand at the top, filled with what was measured or null:

    throughput_ratio      samples/s, mean over the repetitions of the largest size
    accuracy              mean over the repetitions
    prepare_*_time        checking, uploading, submitting          total_*_time  everything
    proc_*_time           the job, as its backend tells            dataload_*_time  as the workload tells (phases.json)
    power, energy, use    see energy.py

All times are ISO 8601 with their zone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from paceline.errors import FormatError

LARGEST = 16 << 20
Mode = Literal["cluster", "single_server"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping inside the result; fields of later versions are passed over."""


class Times(Part, frozen=True):
    prepare_start_time: str | None = None
    prepare_end_time: str | None = None
    dataload_start_time: str | None = None
    dataload_end_time: str | None = None
    proc_start_time: str | None = None
    proc_end_time: str | None = None


class EnergyPart(Part, frozen=True):
    """Made by energy.py; null where nothing on that machine tells."""

    source: str | None = None
    samples: int = 0
    cards: int | None = None
    average_power: float | None = None
    max_power: float | None = None
    energy_consumption: float | None = None
    resource_util_ratio: float | None = None


class Repetition(Part, frozen=True):
    """One run of the job."""

    job_id: str
    throughput: float
    accuracy: float | None
    throughput_list: tuple[float, ...]
    accuracy_list: tuple[float, ...]
    cards: tuple[tuple[float, ...], ...]
    """Every card's own throughput, by node."""
    times: Times = Times()
    energy: EnergyPart = EnergyPart()


class SpreadPart(Part, frozen=True):
    count: int
    mean: float
    deviation: float | None
    least: float
    most: float


class OutlierPart(Part, frozen=True):
    """A rank, node or repetition that is not like its peers."""

    kind: Literal["rank", "node", "run"]
    name: str
    value: float
    peers: float
    percent: float
    runs: int
    """In how many repetitions it stood out."""


class ProfilePart(Part, frozen=True):
    """What the profile of this size says."""

    source: str
    step_ms: float | None
    shares: dict[str, float]
    """Part of the step → share of it; see `paceline diagnose`."""
    diagnosis: dict[str, Any] | None
    """Schema paceline.diagnosis/1, English; null when it could not be made, and why is in the warnings."""
    titles_zh: tuple[str, ...] = ()


class Measurement(Part, frozen=True):
    """One size of the job, repeated."""

    ranks: int
    nodes: int
    per_rank: float
    """Samples per second of one rank, mean over all and over the repetitions."""
    throughput: SpreadPart
    accuracy: SpreadPart | None
    repetitions: tuple[Repetition, ...]
    outliers: tuple[OutlierPart, ...] = ()
    efficiency: float | None = None
    """Throughput per rank relative to the smallest size; null without a sweep."""
    profile: ProfilePart | None = None


class Loss(Part, frozen=True):
    """Where the time went that the larger size lost, in ms of a step."""

    ranks: int
    against: int
    step_ms: float
    step_ms_before: float
    grown_ms: dict[str, float]
    sentences: tuple[str, ...]
    sentences_zh: tuple[str, ...]


class Comparison(Part, frozen=True):
    """Against a baseline; noise as explained in baseline.py."""

    baseline: str
    metric: str
    before: float
    after: float
    noise: float
    percent: float
    verdict: Literal["better", "worse", "same"]


class Provenance(Part, frozen=True):
    """What was measured, where and how."""

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


class Result(msgspec.Struct, frozen=True, kw_only=True, tag="paceline.bench/1", tag_field="schema"):
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
    losses: tuple[Loss, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    provenance: Provenance
    warnings: tuple[str, ...] = ()

    @property
    def largest(self) -> Measurement:
        return self.measurements[-1]


_DOCUMENTED = (
    "accuracy", "average_power", "dataload_end_time", "dataload_start_time", "efficientcy", "energy_consumption",
    "max_power", "prepare_end_time", "prepare_start_time", "proc_end_time", "proc_start_time", "resource_util_ratio",
    "throughput_ratio", "total_end_time", "total_start_time",
)  # fmt: skip


def train_result_info(result: Result) -> dict[str, str | float | None]:
    """The documented object with the documented types: scores as text, times as "YYYY-mm-dd HH:MM:SS" (UTC)."""
    info: dict[str, str | float | None] = {}
    for name in _DOCUMENTED:
        value = getattr(result, name)
        if name in ("accuracy", "throughput_ratio") and value is not None:
            value = str(value)
        elif name.endswith("_time") and value is not None:
            value = datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        info[name] = value
    return info


def encode(result: Result) -> str:
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"


def decode(data: bytes, called: str) -> Result:
    """A result from outside: checked before anything of it is believed."""
    if len(data) > LARGEST:
        raise FormatError(f"{called}: is larger than {LARGEST:,} bytes; not a benchmark result")
    try:
        result = msgspec.json.decode(data, type=Result)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"{called}: not a benchmark result (paceline.bench/1): {error}") from error
    if not all(each.repetitions and each.ranks > 0 for each in result.measurements) or not result.measurements:
        raise FormatError(f"{called}: a benchmark result without a measurement")
    for name in _DOCUMENTED:
        value = getattr(result, name)
        if isinstance(value, str) and as_moment(value) is None:
            raise FormatError(f"{called}: {name}: {value[:60]!r} is no time")
    return result


def read_result(path: Path) -> Result:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}", file=path) from error
    return decode(data, str(path))


def as_moment(text: str) -> str | None:
    """A time as others write it, as ISO 8601 with its zone (this machine's, when it names none); None when it is none.

    >>> as_moment("2026-11-17T02:24:27Z")
    '2026-11-17T02:24:27+00:00'
    """
    try:
        found = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        return (found if found.tzinfo else found.astimezone()).isoformat()
    except (ValueError, OverflowError):
        return None


def moment(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601.

    >>> moment(0.5)
    '1970-01-01T00:00:00.500+00:00'
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
