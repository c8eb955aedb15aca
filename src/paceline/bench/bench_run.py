"""Run a benchmark: every size and repetition of its job, and one result."""

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

from paceline.bench.bench_plan import BenchPlan
from paceline.bench.outliers import find_outliers
from paceline.bench.profile import diagnose_profile
from paceline.bench.provenance import busy_machine_warning, cores, provenance
from paceline.bench.result import (
    BenchResult,
    EnergyPart,
    Measurement,
    ProfilePart,
    Repetition,
    SpreadPart,
    to_iso_time,
)
from paceline.bench.run_repetition import OnLog, StartError, run_measured, run_recorded
from paceline.bench.scaling import scaling_losses, with_efficiency
from paceline.bench.spread import spread
from paceline.core.errors import PacelineError
from paceline.jobs import JobDescription

JOBS = "paceline-jobs"
"""Directory of a benchmark's jobs; never copied as code when it lies below code_dir."""


@dataclass(frozen=True)
class RunListeners:
    """Callbacks while a benchmark runs."""

    on_log: OnLog | None = None
    on_stage: Callable[[str], None] = lambda text: None


def new_directory(plan: BenchPlan, wanted: Path | None) -> Path:
    """Directory of this run; the directory of an earlier run is never written to."""
    place = wanted or Path("paceline-bench") / new_id(plan.name, time.time())
    if place.exists() and any(place.iterdir()):
        raise StartError(f"{place} already exists and is not empty", hint="choose another --out")
    return place


def run_benchmark(
    plan: BenchPlan, directory: Path, listeners: RunListeners
) -> tuple[BenchResult, PacelineError | None]:
    """Runs all sizes below `directory`. The first failure ends it; sizes measured before are in the result."""
    started = time.time()
    busy = busy_machine_warning() if plan.job.backend == "local" else None
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
    plan: BenchPlan, measurements: Sequence[Measurement], started: float, warnings: Sequence[str], *, failed: bool
) -> BenchResult:
    grown = with_efficiency(measurements)
    local = plan.job.backend == "local"
    first, last = grown[0].repetitions[0], grown[-1].repetitions[-1]
    energy = _mean_energy(grown[-1].repetitions)
    throughput = grown[-1].throughput.mean
    return BenchResult(
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
        total_start_time=to_iso_time(started),
        total_end_time=to_iso_time(time.time()),
        measurements=grown,
        losses=scaling_losses(grown, cores() if local else None),
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


def _measure(plan: BenchPlan, size: int, directory: Path, listeners: RunListeners, warnings: list[str]) -> Measurement:
    job = msgspec.structs.replace(plan.job, ranks=size)
    ranks = (
        f"{size} rank{'s' if size > 1 else ''} per node" if job.nodes > 1 else f"{size} rank{'s' if size > 1 else ''}"
    )
    repetitions: list[Repetition] = []
    for number in range(1, plan.repeat + 1):
        listeners.on_stage(f"{ranks}: run {number} of {plan.repeat}")
        place = directory / JOBS / _job_name(directory, size, f"run{number}")
        repetition, score = run_measured(plan, job, place, on_log=listeners.on_log)
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
    plan: BenchPlan, job: JobDescription, directory: Path, listeners: RunListeners, warnings: list[str]
) -> ProfilePart | None:
    """A separate run, so that profiling does not lower the score; the score is valid without it."""
    if plan.profile is None:
        return None
    listeners.on_stage(f"{job.ranks} rank{'s' if job.ranks > 1 else ''}: recorded run, not scored")
    try:
        place = directory / JOBS / _job_name(directory, job.ranks, "profile")
        source = run_recorded(plan, job, place, on_log=listeners.on_log)
    except PacelineError as error:
        warnings.append(f"{job.ranks} ranks: no profile: {error}")
        return None
    part, problems = diagnose_profile(source)
    warnings += [f"{job.ranks} ranks: {problem}" for problem in problems]
    return part


def _job_name(directory: Path, size: int, what: str) -> str:
    """A job is named after its directory: unique among all of this user's jobs."""
    return f"{directory.resolve().name[-40:].lstrip('-_.')}-{size}x-{what}-{secrets.token_hex(2)}"


def _spread(values: Sequence[float]) -> SpreadPart:
    return SpreadPart(**asdict(spread(values)))


def _accuracy(repetitions: Sequence[Repetition]) -> SpreadPart | None:
    known = [each.accuracy for each in repetitions if each.accuracy is not None]
    return _spread(known) if known else None


def _mean_energy(repetitions: Sequence[Repetition]) -> EnergyPart:
    """Means over the repetitions, except the highest power: the highest of all."""
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
