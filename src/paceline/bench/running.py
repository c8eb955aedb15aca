"""A whole benchmark: every size, every repetition, one result."""

from __future__ import annotations

import re
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from paceline.bench.outliers import find_outliers
from paceline.bench.plan import Plan
from paceline.bench.profile import examine
from paceline.bench.provenance import busy_with_others, cores, provenance
from paceline.bench.repetition import OnLog, StartError, measured, recorded
from paceline.bench.result import (
    EnergyPart,
    Measurement,
    ProfilePart,
    Repetition,
    Result,
    SpreadPart,
    moment,
)
from paceline.bench.scaling import losses, with_efficiency
from paceline.bench.spread import spread
from paceline.errors import PacelineError
from paceline.jobs import JobDescription

JOBS = "paceline-jobs"
"""Where a benchmark's jobs are; a directory of that name below the code is never taken for code."""


@dataclass(frozen=True)
class Listeners:
    """Who hears what happens meanwhile."""

    on_log: OnLog | None = None
    on_stage: Callable[[str], None] = lambda text: None


def new_directory(plan: Plan, wanted: Path | None) -> Path:
    """Where everything of this run goes; an earlier run's directory is never written into."""
    place = wanted or Path("paceline-bench") / new_id(plan.name, time.time())
    if place.exists() and any(place.iterdir()):
        raise StartError(f"{place}: is there already", hint="every run has a directory of its own: another --out")
    return place


def run_benchmark(plan: Plan, directory: Path, listeners: Listeners) -> tuple[Result, PacelineError | None]:
    """Everything below `directory`. The first failure ends it; sizes that were measured before it are not lost."""
    started = time.time()
    busy = busy_with_others() if plan.job.backend == "local" else None
    warnings = [busy] if busy else []
    measurements: list[Measurement] = []
    failure: PacelineError | None = None
    for size in plan.sizes:
        try:
            measurements.append(_measure(plan, size, directory, listeners, warnings))
        except PacelineError as error:
            if not measurements:
                raise
            failure = error
            warnings.append(f"{size} ranks: {error}")
            break
    return _result(plan, measurements, started, warnings, failed=failure is not None), failure


def _result(
    plan: Plan, measurements: Sequence[Measurement], started: float, warnings: Sequence[str], *, failed: bool
) -> Result:
    grown = with_efficiency(measurements)
    local = plan.job.backend == "local"
    first, last = grown[0].repetitions[0], grown[-1].repetitions[-1]
    energy = _mean_energy(grown[-1].repetitions)
    throughput = grown[-1].throughput.mean
    return Result(
        id=new_id(plan.name, started),
        name=plan.name,
        result="FAILED" if failed else "OK",
        mode="single_server" if plan.job.single_server_mode else "cluster",
        backend=plan.job.backend,
        throughput_ratio=throughput,
        accuracy=grown[-1].accuracy.mean if grown[-1].accuracy else None,
        average_power=energy.average_power,
        max_power=energy.max_power,
        energy_consumption=energy.energy_consumption,
        efficientcy=throughput / energy.average_power if energy.average_power else None,
        resource_util_ratio=energy.resource_util_ratio,
        prepare_start_time=first.times.prepare_start_time,
        prepare_end_time=first.times.prepare_end_time,
        dataload_start_time=first.times.dataload_start_time,
        dataload_end_time=first.times.dataload_end_time,
        proc_start_time=first.times.proc_start_time,
        proc_end_time=last.times.proc_end_time,
        total_start_time=moment(started),
        total_end_time=moment(time.time()),
        measurements=grown,
        losses=losses(grown, cores() if local else None),
        provenance=provenance(plan.file, Path(plan.job.code_dir), energy),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def new_id(name: str, at: float) -> str:
    """Sorts by time; safe as a file name.

    >>> new_id("my model", 0.0).rpartition("-")[0]
    '19700101T000000Z-my_model'
    """
    safe = re.sub(r"[^A-Za-z0-9_.+-]", "_", name)[:60].lstrip(".")
    return f"{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%SZ}-{safe}-{secrets.token_hex(3)}"


def _measure(plan: Plan, size: int, directory: Path, listeners: Listeners, warnings: list[str]) -> Measurement:
    job = msgspec.structs.replace(plan.job, ranks=size)
    ranks = (
        f"{size} rank{'s' if size > 1 else ''} per node" if job.nodes > 1 else f"{size} rank{'s' if size > 1 else ''}"
    )
    repetitions: list[Repetition] = []
    for number in range(1, plan.repeat + 1):
        listeners.on_stage(f"{ranks}: run {number} of {plan.repeat}")
        place = directory / JOBS / _job_name(directory, size, f"run{number}")
        repetition, score = measured(plan, job, place, on_log=listeners.on_log)
        repetitions.append(repetition)
        warnings += score.warnings
        listeners.on_stage(f"{ranks}: run {number} of {plan.repeat}: {score.throughput:,.2f} samples/s")
    return Measurement(
        ranks=sum(len(node) for node in repetitions[-1].cards),
        nodes=job.nodes,
        per_rank=statistics.fmean(card for each in repetitions for node in each.cards for card in node),
        throughput=_spread([each.throughput for each in repetitions]),
        accuracy=_accuracy(repetitions),
        repetitions=tuple(repetitions),
        outliers=tuple(find_outliers(repetitions)),
        profile=_profile(plan, job, directory, listeners, warnings),
    )


def _profile(
    plan: Plan, job: JobDescription, directory: Path, listeners: Listeners, warnings: list[str]
) -> ProfilePart | None:
    """Recorded apart, so that recording costs the score nothing; without it the score still stands."""
    if plan.profile is None:
        return None
    listeners.on_stage(f"{job.ranks} rank{'s' if job.ranks > 1 else ''}: recorded run, not scored")
    try:
        place = directory / JOBS / _job_name(directory, job.ranks, "profile")
        source = recorded(plan, job, place, on_log=listeners.on_log)
    except PacelineError as error:
        warnings.append(f"{job.ranks} ranks: no profile: {error}")
        return None
    part, problems = examine(source)
    warnings += [f"{job.ranks} ranks: {problem}" for problem in problems]
    return part


def _job_name(directory: Path, size: int, what: str) -> str:
    """A job is called as its directory is: unique among all of this user's jobs."""
    return f"{directory.resolve().name[-40:].lstrip('-_.')}-{size}x-{what}-{secrets.token_hex(2)}"


def _spread(values: Sequence[float]) -> SpreadPart:
    return SpreadPart(**asdict(spread(values)))


def _accuracy(repetitions: Sequence[Repetition]) -> SpreadPart | None:
    known = [each.accuracy for each in repetitions if each.accuracy is not None]
    return _spread(known) if known else None


def _mean_energy(repetitions: Sequence[Repetition]) -> EnergyPart:
    """Means over the repetitions, but of the highest power the highest."""
    parts = [each.energy for each in repetitions]

    def mean(name: str) -> float | None:
        known = [value for part in parts if (value := getattr(part, name)) is not None]
        return statistics.fmean(known) if known else None

    return EnergyPart(
        source=parts[-1].source,
        samples=sum(part.samples for part in parts),
        cards=parts[-1].cards,
        average_power=mean("average_power"),
        max_power=max((part.max_power for part in parts if part.max_power is not None), default=None),
        energy_consumption=mean("energy_consumption"),
        resource_util_ratio=mean("resource_util_ratio"),
    )
