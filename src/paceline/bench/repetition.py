"""One run of a benchmark's job: prepare → run → collect → score."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.bench.energy import Sampler
from paceline.bench.number_file import LARGEST
from paceline.bench.plan import Plan
from paceline.bench.result import EnergyPart, Repetition, Times, as_moment, moment
from paceline.bench.result_files import ResultError, is_result_file
from paceline.bench.score import Score, score_directory
from paceline.errors import PacelineError
from paceline.jobs import JobDescription, JobHandle, JobOutcome, LogPiece, backend_for, submit, wait
from paceline.storage.selection import Rule, for_diagnosis

OnLog = Callable[[LogPiece], None]
_LAST_LINES = 12
_LAST_BYTES = 64 * 1024


class StartError(PacelineError):
    """Nothing was run: exit code 1, the documented "init"."""

    exit_code = 1


class TrainingError(PacelineError):
    """The job failed: exit code 2, the documented "run_train"."""

    exit_code = 2


@dataclass(frozen=True)
class Ran:
    """A job that ended well, and where its outputs are now."""

    handle: JobHandle
    outcome: JobOutcome
    outputs: Path
    energy: EnergyPart
    prepare: tuple[float, float]


def run_job(
    job: JobDescription, directory: Path, *, rule: Rule, minutes: float | None = None, on_log: OnLog | None = None
) -> Ran:
    """Start it, wait for it (for so many minutes at most), bring its outputs home."""
    prepare_start = time.time()
    backend = backend_for(job)
    try:
        handle = submit(job, directory)
    except PacelineError as error:
        raise StartError(str(error), hint=error.hint) from error
    prepare_end = time.time()
    # Only this machine's cards can be asked; what a job uses elsewhere is not known here.
    sampler = Sampler() if job.backend == "local" else Sampler(meter=None)
    try:
        with sampler, _stopped_after(minutes, handle) as too_late:
            outcome = wait(handle, on_log=on_log)
    except KeyboardInterrupt:
        backend.stop(handle)
        raise
    if not outcome.succeeded:
        late = f"stopped after {minutes:g} minutes (timeout_minutes)\n          " if too_late.is_set() else ""
        raise TrainingError(late + _failure(outcome), hint=f"its whole log: {handle.logs}")
    try:
        outputs = backend.fetch_outputs(handle, directory / "fetched", rule)
    except PacelineError as error:
        raise ResultError(str(error), hint=error.hint) from error
    return Ran(handle, outcome, outputs, sampler.energy(), (prepare_start, prepare_end))


def measured(
    plan: Plan, job: JobDescription, directory: Path, *, on_log: OnLog | None = None
) -> tuple[Repetition, Score]:
    """A run that counts."""
    ran = run_job(job, directory, rule=_is_result_anywhere, minutes=plan.timeout_minutes, on_log=on_log)
    place = results_place(ran.outputs, plan.results)
    score = score_directory(
        place,
        single_server=job.single_server_mode,
        nodes=job.nodes if job.single_server_mode else None,
        ranks=None if job.single_server_mode else job.world_size,
        accuracy=plan.accuracy,
    )
    status = ran.outcome.status
    told = _phases(place / "phases.json")
    times = Times(
        prepare_start_time=moment(ran.prepare[0]),
        prepare_end_time=moment(ran.prepare[1]),
        dataload_start_time=told.get("dataload_start_time"),
        dataload_end_time=told.get("dataload_end_time"),
        proc_start_time=told.get("proc_start_time") or moment(status.started),
        proc_end_time=told.get("proc_end_time") or moment(status.ended),
    )
    return _repetition(ran, score, times), score


def recorded(plan: Plan, job: JobDescription, directory: Path, *, on_log: OnLog | None = None) -> Path:
    """A run that is recorded and does not count; returns where its recording is."""
    assert plan.profile is not None
    changed = msgspec.structs.replace(job, hyperparameters={**job.hyperparameters, **plan.profile.hyperparameters})
    ran = run_job(changed, directory, rule=for_diagnosis, minutes=plan.timeout_minutes, on_log=on_log)
    return results_place(ran.outputs, plan.profile.source)


@contextmanager
def _stopped_after(minutes: float | None, handle: JobHandle) -> Iterator[threading.Event]:
    """Ends a job that takes too long; the event says that it did."""
    too_late = threading.Event()

    def stop() -> None:
        too_late.set()
        backend_for(handle).stop(handle)  # one of its own: backends keep connections, and another thread uses ours

    timer = threading.Timer(60 * minutes, stop) if minutes else None
    if timer:
        timer.start()
    try:
        yield too_late
    finally:
        if timer:
            timer.cancel()
            timer.join()


def results_place(outputs: Path, below: str) -> Path:
    """The directory the training was told to write to; an only output needs no name."""
    place = outputs / below if below else outputs
    entries = [entry for entry in outputs.iterdir() if entry.is_dir()] if outputs.is_dir() else []
    if not below and len(entries) == 1 and not any(entry.is_file() for entry in outputs.iterdir()):
        return entries[0]
    if below and not place.exists() and len(entries) == 1 and (entries[0] / below).exists():
        return entries[0] / below
    return place


def _is_result_anywhere(key: str) -> bool:
    """Only small result files are fetched for a score, at whatever depth; checkpoints stay where they are."""
    parts = key.split("/")
    return any(is_result_file("/".join(parts[start:])) for start in range(len(parts)))


def _repetition(ran: Ran, score: Score, times: Times) -> Repetition:
    return Repetition(
        job_id=ran.handle.id,
        throughput=score.throughput,
        accuracy=score.accuracy,
        throughput_list=score.throughput_list,
        accuracy_list=score.accuracy_list,
        cards=score.cards,
        times=times,
        energy=ran.energy,
    )


def _phases(path: Path) -> dict[str, str]:
    """What the workload itself tells of its phases: {"dataload_start_time": "2026-…", …}; what is no time is left out."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        return {}
    try:
        said = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    texts = {key: value for key, value in said.items() if isinstance(value, str)} if isinstance(said, dict) else {}
    return {key: found for key, value in texts.items() if (found := as_moment(value))}


def _failure(outcome: JobOutcome) -> str:
    status = outcome.status
    why = f": {status.reason}" if status.reason else ""
    bad = [f"{worker.name} ended with {worker.exit_code}" for worker in status.workers if worker.exit_code]
    lines = [f"the job {outcome.name} ({outcome.backend}) did not complete: {status.phase.value}{why}", *bad[:8]]
    return "\n          ".join([*lines, *_last_lines(outcome.logs)])


def _end_of(log: Path) -> str:
    """A log may have gigabytes."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LAST_BYTES))
            return file.read(_LAST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _last_lines(logs: tuple[str, ...]) -> list[str]:
    """The end of the first worker's log that says anything."""
    for log in logs:
        lines = _end_of(Path(log)).splitlines()
        if lines:
            return [f"| {line[:200]}" for line in lines[-_LAST_LINES:]]
    return []
