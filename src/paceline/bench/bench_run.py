"""Run a benchmark: every size and repetition of its job, and one result."""

from __future__ import annotations

import hashlib
import re
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import msgspec

from paceline.bench.bench_plan import BenchPlan, job_of_size
from paceline.bench.node_facts import VARIABLE
from paceline.bench.profile import diagnose_profile
from paceline.bench.progress import PROFILE, BenchOptions, BenchProgress, RunRecord
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
from paceline.bench.run_repetition import OnLog, RunPlace, StartError, run_measured, run_recorded, unfinished_job
from paceline.bench.spread import spread
from paceline.bench.statistics.expectations import check_expectations
from paceline.bench.statistics.outliers import find_outliers
from paceline.bench.statistics.scaling import scaling_losses, with_efficiency
from paceline.bench.workload_facts import with_workload
from paceline.core.errors import PacelineError
from paceline.core.message import Sentence, message, said_at
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
    plan: BenchPlan, directory: Path, listeners: RunListeners, progress: BenchProgress | None = None
) -> tuple[BenchResult, PacelineError | None]:
    """Runs all sizes below `directory`. The first failure ends it; sizes measured before are in the result.

    What `progress` has is kept: only missing runs are started, and jobs that still run are followed.
    """
    progress = progress or BenchProgress.begin(directory, options_of(plan))
    started = progress.options.started
    busy = busy_machine_warning() if plan.job.backend == "local" else None
    warnings: list[Sentence] = [busy] if busy else []
    measurements: list[Measurement] = []
    failure: PacelineError | None = None
    for size in plan.sizes:
        try:
            measurements.append(_SizeRuns(plan, size, directory, listeners, progress, warnings).measure())
        except PacelineError as error:
            if not measurements:
                raise
            failure = error
            warnings.append(said_at(message("place_size", n=size), error.said))
            break
    return _result(plan, measurements, started, warnings, failed=failure is not None), failure


def _result(
    plan: BenchPlan, measurements: Sequence[Measurement], started: float, warnings: Sequence[Sentence], *, failed: bool
) -> BenchResult:
    grown = with_efficiency(measurements)
    local = plan.job.backend == "local"
    first, last = grown[0].repetitions[0], grown[-1].repetitions[-1]
    energy = _mean_energy(grown[-1].repetitions)
    throughput = grown[-1].throughput.mean
    made = BenchResult(
        id=new_id(plan.name, started, _digest(grown)),
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
        target_accuracy=plan.target_accuracy,
        provenance=msgspec.structs.replace(
            provenance(plan.file, Path(plan.job.code_dir), energy),
            nodes=last.nodes,
            image=plan.job.image or (plan.job.engine.version if plan.job.engine else ""),
            flavor=plan.job.flavor,
            pool=plan.job.pool_id,
        ),
        warnings=tuple(map(str, dict.fromkeys(warnings))),
        warnings_said=tuple(dict.fromkeys(warnings)),
    )
    if plan.expect is None:
        return made
    expectations = check_expectations(made, plan.expect)
    verdict: Literal["PASS", "FAIL"] = "PASS" if all(each.passed for each in expectations) and not failed else "FAIL"
    return msgspec.structs.replace(made, expectations=expectations, verdict=verdict)


def new_id(name: str, at: float, digest: str = "") -> str:
    """Sorts by time, also within a second; safe as a file name; random without a digest.

    >>> new_id("my model", 0.25).rpartition("-")[0]
    '19700101T000000.250000Z-my_model'
    """
    safe = re.sub(r"[^A-Za-z0-9_.+-]", "_", name)[:60].lstrip(".")
    return f"{datetime.fromtimestamp(at, timezone.utc):%Y%m%dT%H%M%S.%fZ}-{safe}-{digest or secrets.token_hex(3)}"


def _digest(sizes: Sequence[Measurement]) -> str:
    """Of the runs: a result that is resumed without anything left to do is the same result."""
    jobs = " ".join(run.job_id for size in sizes for run in size.repetitions)
    return hashlib.sha256(jobs.encode()).hexdigest()[:6]


class _SizeRuns:
    """All runs of one size; every finished one is kept in the progress at once."""

    def __init__(
        self,
        plan: BenchPlan,
        size: int,
        directory: Path,
        listeners: RunListeners,
        progress: BenchProgress,
        warnings: list[Sentence],
    ) -> None:
        self._plan, self._size, self._directory = plan, size, directory
        self._listeners, self._progress, self._warnings = listeners, progress, warnings
        self._job = _with_node_facts(job_of_size(plan, size))
        plural = f"{size} rank{'s' if size > 1 else ''}"
        self._shown = f"{plural} per node" if self._job.nodes > 1 else plural

    def measure(self) -> Measurement:
        runs = [self._run(number) for number in range(1, self._plan.repeat + 1)]
        repetitions = [run.repetition for run in runs if run.repetition is not None]
        self._warnings += [warning for run in runs for warning in run.warnings]
        per_rank = statistics.fmean(card for each in repetitions for node in each.cards for card in node)
        return with_workload(
            Measurement(
                ranks=sum(len(node) for node in repetitions[-1].cards),
                nodes=self._job.nodes,
                per_rank=per_rank,
                throughput=_spread([each.throughput for each in repetitions]),
                accuracy=_accuracy(repetitions),
                repetitions=tuple(repetitions),
                outliers=tuple(find_outliers(repetitions)),
                profile=self._profile(),
                scaling=self._plan.sweep.scaling if self._plan.sweep else "weak",
                time_to_quality=_all_reached(repetitions),
            ),
            self._plan.workload,
        )

    def _run(self, number: int) -> RunRecord:
        known = self._progress.find(self._size, number)
        stage = f"{self._shown}: run {number} of {self._plan.repeat}"
        if known is not None and known.repetition is not None:
            self._listeners.on_stage(f"{stage}: kept, {known.repetition.throughput:,.2f} samples/s")
            return known
        self._listeners.on_stage(stage)
        where = self._begin(number, f"run{number}", known)
        repetition, score = run_measured(self._plan, self._job, where, on_log=self._listeners.on_log)
        self._listeners.on_stage(f"{stage}: {score.throughput:,.2f} samples/s")
        return self._progress.record(
            RunRecord(
                size=self._size,
                number=number,
                job_id=repetition.job_id,
                repetition=repetition,
                warnings=score.said,
            )
        )

    def _begin(self, number: int, what: str, known: RunRecord | None) -> RunPlace:
        """The job that an interrupted client left, or a new one, recorded before it is started."""
        handle = unfinished_job(known.job_id) if known is not None else None
        if handle is not None:
            self._listeners.on_stage(f"re-attached to {handle.id} ({handle.backend} {handle.remote_id})")
            return RunPlace(Path(handle.directory), handle)
        place = self._directory / JOBS / _job_name(self._directory, self._size, what)
        self._progress.record(RunRecord(size=self._size, number=number, job_id=place.name))
        return RunPlace(place)

    def _profile(self) -> ProfilePart | None:
        """A separate run, so that profiling does not lower the score; the score is valid without it."""
        if self._plan.profile is None:
            return None
        known = self._progress.find(self._size, PROFILE)
        if known is not None and known.profile is not None:
            self._warnings += known.warnings
            return known.profile
        self._listeners.on_stage(f"{self._shown}: recorded run, not scored")
        try:
            where = self._begin(PROFILE, "profile", known)
            source = run_recorded(self._plan, self._job, where, on_log=self._listeners.on_log)
        except PacelineError as error:
            self._warnings.append(self._of_size(message("no_profile", error=error)))
            return None
        part, problems = diagnose_profile(source, self._directory / f"profile-{self._size}.html")
        noted = tuple(map(self._of_size, problems))
        self._warnings += noted
        name = where.directory.name
        self._progress.record(RunRecord(size=self._size, number=PROFILE, job_id=name, profile=part, warnings=noted))
        return part

    def _of_size(self, said: Sentence) -> Sentence:
        return said_at(message("place_size", n=self._job.ranks), said)


def options_of(
    plan: BenchPlan, *, baseline: str | None = None, tester: Path | None = None, store: Path | None = None
) -> BenchOptions:
    return BenchOptions(
        config=str(plan.file),
        config_sha256=hashlib.sha256(plan.file.read_bytes()).hexdigest(),
        backend=plan.job.backend,
        repeat=plan.repeat,
        started=time.time(),
        baseline=baseline,
        tester=str(tester) if tester else None,
        store=str(store) if store else None,
    )


def _with_node_facts(job: JobDescription) -> JobDescription:
    """Every node of a benchmark reports what it is."""
    return msgspec.structs.replace(job, environment={**job.environment, VARIABLE: 1})


def _all_reached(repetitions: Sequence[Repetition]) -> float | None:
    known = [each.time_to_quality for each in repetitions if each.time_to_quality is not None]
    return statistics.fmean(known) if len(known) == len(repetitions) else None


def _job_name(directory: Path, size: int, what: str) -> str:
    """A job is named after its directory: unique among all of this user's jobs."""
    return f"{directory.resolve().name[-40:].lstrip('-_.')}-{size}x-{what}-{secrets.token_hex(2)}"


def _spread(values: Sequence[float]) -> SpreadPart:
    found = spread(values)
    return SpreadPart(**asdict(found), interval=found.interval)


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
