"""One repetition of a benchmark's job: prepare → run → collect → score."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import msgspec

from paceline.bench.bench_plan import BenchPlan
from paceline.bench.node_facts import read_node_facts
from paceline.bench.number_file import LARGEST
from paceline.bench.power.energy import PowerSampler
from paceline.bench.result import EnergyPart, Repetition, RunTimes, parse_iso_time, to_iso_time
from paceline.bench.result_files import ResultError, is_result_file
from paceline.bench.statistics.score import BenchScore, score_directory
from paceline.bench.statistics.time_to_quality import EVALUATIONS, read_evaluations, time_to_quality
from paceline.bench.workload_facts import FILE, read_workload_facts
from paceline.core.errors import PacelineError, UsageError
from paceline.core.message import Sentence, in_lines, message, said_at
from paceline.jobs import JobDescription, JobHandle, JobOutcome, JobPhase, LogPiece, backend_for, submit, wait
from paceline.jobs.job_registry import find_record
from paceline.jobs.submission import recover_handle
from paceline.storage.file_selection import FileFilter

OnLog = Callable[[LogPiece], None]
_LAST_LINES = 12
_LAST_BYTES = 64 * 1024


class StartError(PacelineError):
    """Nothing was run: exit code 1, ais-bench's "init"."""

    exit_code = 1


class TrainingError(PacelineError):
    """The job failed: exit code 2, ais-bench's "run_train"."""

    exit_code = 2


@dataclass(frozen=True)
class FinishedJob:
    """A job that completed, and where its outputs are."""

    handle: JobHandle
    outcome: JobOutcome
    outputs: Path
    energy: EnergyPart
    prepare: tuple[float, float]


@dataclass(frozen=True)
class RunPlace:
    """Where a run's job is, or the job that an interrupted client left."""

    directory: Path
    handle: JobHandle | None = None


def unfinished_job(job_id: str) -> JobHandle | None:
    """The job of an interrupted run, if it still runs or has completed meanwhile."""
    try:
        handle = recover_handle(find_record(job_id).handle)
    except UsageError:
        return None  # it was never started
    phase = backend_for(handle).status(handle).phase
    lost = phase.finished and phase is not JobPhase.completed
    return None if lost or phase is JobPhase.stopping else handle


def run_job(
    job: JobDescription, where: RunPlace, *, rule: FileFilter, minutes: float | None = None, on_log: OnLog | None = None
) -> FinishedJob:
    """Start a job (or re-attach to it), wait for it (`minutes` at most), download its outputs."""
    prepare_start = time.time()
    backend, handle = backend_for(job), where.handle
    if handle is None:
        try:
            handle = submit(job, where.directory)
        except PacelineError as error:
            raise StartError(str(error), hint=error.hint) from error
    else:
        prepare_start = handle.submitted
    prepare_end = time.time() if where.handle is None else handle.submitted
    # Only this machine's cards can be measured, and only from a run's beginning.
    measured = job.backend == "local" and where.handle is None
    sampler = PowerSampler() if measured else PowerSampler(meter=None)
    try:
        with sampler, _stopped_after(minutes, handle) as too_late:
            outcome = wait(handle, on_log=on_log)
    except KeyboardInterrupt:
        backend.stop(handle)
        print(f"\npaceline: stopped the running job {handle.id}", file=sys.stderr)
        raise
    if not outcome.succeeded:
        late = [message("timed_out", minutes=f"{minutes:g}")] if too_late.is_set() else []
        raise TrainingError(in_lines([*late, *_failure(outcome)]), hint=f"complete logs: {handle.logs}")
    try:
        outputs = backend.fetch_outputs(handle, Path(handle.directory) / "fetched", rule)
    except PacelineError as error:
        raise ResultError(error.said, hint=error.hint) from error
    return FinishedJob(handle, outcome, outputs, sampler.energy(), (prepare_start, prepare_end))


def run_measured(
    plan: BenchPlan, job: JobDescription, where: RunPlace, *, on_log: OnLog | None = None
) -> tuple[Repetition, BenchScore]:
    """A run that is scored."""
    ran = run_job(job, where, rule=_is_result_anywhere, minutes=plan.timeout_minutes, on_log=on_log)
    place = results_directory(ran.outputs, plan.results)
    score = score_directory(
        place,
        single_server=job.single_server_mode,
        nodes=job.nodes if job.single_server_mode else None,
        ranks=None if job.single_server_mode else job.world_size,
        accuracy=plan.accuracy,
    )
    status = ran.outcome.status
    phases = _phases(place / "phases.json")
    times = RunTimes(
        prepare_start_time=to_iso_time(ran.prepare[0]),
        prepare_end_time=to_iso_time(ran.prepare[1]),
        dataload_start_time=phases.get("dataload_start_time"),
        dataload_end_time=phases.get("dataload_end_time"),
        proc_start_time=phases.get("proc_start_time") or to_iso_time(status.started),
        proc_end_time=phases.get("proc_end_time") or to_iso_time(status.ended),
    )
    evaluations = read_evaluations(place / EVALUATIONS)
    reached = time_to_quality(evaluations, plan.target_accuracy, score.accuracy, times)
    made = _repetition(ran, score, times)
    facts, problems = read_workload_facts(place / FILE)
    made = msgspec.structs.replace(made, evaluations=evaluations, time_to_quality=reached, workload=facts)
    return made, replace(score, said=(*score.said, *problems))


def run_recorded(plan: BenchPlan, job: JobDescription, where: RunPlace, *, on_log: OnLog | None = None) -> Path:
    """A run that is profiled and not scored; returns the directory of its recording."""
    from paceline.formats.file_selection import needed_for_diagnosis  # imports NumPy, which most runs do not need

    assert plan.profile is not None
    changed = msgspec.structs.replace(job, hyperparameters={**job.hyperparameters, **plan.profile.hyperparameters})
    ran = run_job(changed, where, rule=needed_for_diagnosis, minutes=plan.timeout_minutes, on_log=on_log)
    return results_directory(ran.outputs, plan.profile.source)


@contextmanager
def _stopped_after(minutes: float | None, handle: JobHandle) -> Iterator[threading.Event]:
    """Stops a job that takes too long; the event is set when it did."""
    too_late = threading.Event()

    def stop() -> None:
        too_late.set()
        backend_for(handle).stop(handle)  # its own backend: another thread uses the connections of ours

    timer = threading.Timer(60 * minutes, stop) if minutes else None
    if timer:
        timer.start()
    try:
        yield too_late
    finally:
        if timer:
            timer.cancel()
            timer.join()


def results_directory(outputs: Path, below: str) -> Path:
    """The directory the training wrote its results to; with one output its name may be left out."""
    place = outputs / below if below else outputs
    entries = [entry for entry in outputs.iterdir() if entry.is_dir()] if outputs.is_dir() else []
    if not below and len(entries) == 1 and not any(entry.is_file() for entry in outputs.iterdir()):
        return entries[0]
    if below and not place.exists() and len(entries) == 1 and (entries[0] / below).exists():
        return entries[0] / below
    return place


def _is_result_anywhere(key: str) -> bool:
    """Only small result files are fetched for a score, at any depth; checkpoints are not."""
    parts = key.split("/")
    return any(is_result_file("/".join(parts[start:])) for start in range(len(parts)))


def _repetition(ran: FinishedJob, score: BenchScore, times: RunTimes) -> Repetition:
    return Repetition(
        job_id=ran.handle.id,
        throughput=score.throughput,
        accuracy=score.accuracy,
        throughput_list=score.throughput_list,
        accuracy_list=score.accuracy_list,
        cards=score.cards,
        times=times,
        energy=_with_utilisation(ran.energy, ran.outcome),
        utilisation=ran.outcome.utilisation,
        nodes=read_node_facts(ran.outcome.logs),
    )


def _with_utilisation(energy: EnergyPart, outcome: JobOutcome) -> EnergyPart:
    """The service's mean use of all cards, where this machine could not ask them itself."""
    known = [each for each in outcome.utilisation if each.cards is not None]
    if energy.samples or not known:
        return energy
    return EnergyPart(
        source=outcome.backend,
        samples=sum(each.samples for each in known),
        resource_util_ratio=fmean(each.cards for each in known if each.cards is not None),
    )


def _phases(path: Path) -> dict[str, str]:
    """The times in the workload's phases.json: {"dataload_start_time": "2026-…", …}; other values are left out."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        return {}
    try:
        phases = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    texts = {key: value for key, value in phases.items() if isinstance(value, str)} if isinstance(phases, dict) else {}
    return {key: found for key, value in texts.items() if (found := parse_iso_time(value))}


def _failure(outcome: JobOutcome) -> list[Sentence]:
    """Line by line."""
    status = outcome.status
    told: Sentence = message("not_completed", name=outcome.name, backend=outcome.backend, phase=status.phase.value)
    if status.reason:
        told = said_at(told, status.reason)
    bad = [message("exited", name=each.name, code=each.exit_code) for each in status.workers if each.exit_code]
    return [told, *bad[:8], *_last_lines(outcome.logs)]


def _end_of(log: Path) -> str:
    """The last bytes only: a log may have gigabytes."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LAST_BYTES))
            return file.read(_LAST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _last_lines(logs: tuple[str, ...]) -> list[str]:
    """The end of the first log that is not empty."""
    for log in logs:
        lines = _end_of(Path(log)).splitlines()
        if lines:
            return [f"| {line[:200]}" for line in lines[-_LAST_LINES:]]
    return []
