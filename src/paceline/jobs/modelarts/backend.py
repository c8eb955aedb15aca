"""Jobs on ModelArts: code into the bucket, one request to start, polling that outlives a lost network."""

from __future__ import annotations

import re
import time
from pathlib import Path

import msgspec

from paceline.errors import PacelineError, UsageError
from paceline.jobs.backend import JobHandle, JobStatus, LogPiece, Phase, WorkerStatus
from paceline.jobs.description import JobDescription
from paceline.jobs.log_tail import LogTail
from paceline.jobs.modelarts.cloud import Cloud, CloudJob
from paceline.jobs.modelarts.logs import fetch_whole, pull
from paceline.jobs.modelarts.request import create_request
from paceline.jobs.modelarts.upload import upload_code
from paceline.jobs.outputs import fetch
from paceline.jobs.plan import output_places
from paceline.jobs.record import remember
from paceline.storage.report import OnProgress
from paceline.storage.retry import Backoff
from paceline.storage.selection import Rule, everything
from paceline.storage.store import DeniedError, MissingError, StorageError, TransientError

PHASES = {
    "Creating": Phase.pending, "Pending": Phase.pending, "Running": Phase.running, "Terminating": Phase.stopping,
    "Completed": Phase.completed, "Failed": Phase.failed, "Abnormal": Phase.failed, "Terminated": Phase.stopped,
    "CreateFailed": Phase.failed, "TerminatedFailed": Phase.running, "Lost": Phase.lost,
}  # fmt: skip
"""ModelArts' words; any other is Phase.unknown and is waited out."""
_CREATE_TRIES = 5


class ModelArtsBackend:
    name = "modelarts"

    def __init__(self, job: JobDescription, backoff: Backoff | None = None) -> None:
        self._cloud = Cloud(job.modelarts, backoff)
        self._tail = LogTail()
        self._tasks: dict[str, list[str]] = {}

    def submit(self, job: JobDescription, directory: Path, *, progress: OnProgress | None = None) -> JobHandle:
        """ModelArts is asked first (keys, project), then the code goes up, and only then is anything started."""
        name = self._new_name(job)
        outputs = output_places(job, name)
        log_url = _log_url(job, name)
        warnings = upload_code(job, directory / "upload", progress)
        draft = JobHandle(
            id=directory.name, name=name, backend=self.name, remote_id="", job=job, directory=str(directory),
            submitted=time.time(), outputs=outputs, log_url=log_url, warnings=tuple(warnings),
        )  # fmt: skip
        remember(draft)
        made = self._create(name, create_request(job, name, outputs, log_url))
        return msgspec.structs.replace(draft, remote_id=made.id)

    def recover(self, handle: JobHandle) -> JobHandle | None:
        found = self._cloud.named(handle.name)
        return msgspec.structs.replace(handle, remote_id=found[0].id) if len(found) == 1 else None

    def status(self, handle: JobHandle) -> JobStatus:
        try:
            job = self._cloud.show(handle.remote_id)
        except MissingError as error:
            return JobStatus(Phase.lost, "deleted", str(error))
        self._tasks[handle.id] = [task.name for task in job.tasks]
        phase = PHASES.get(job.phase, Phase.unknown)
        workers = tuple(WorkerStatus(task.name, task.exit_code, task.message) for task in job.tasks)
        reason = self._reason(job, phase, workers)
        return JobStatus(phase, job.phase, reason, job.started, job.ended if phase.finished else None, workers)

    def sync_logs(self, handle: JobHandle, *, last: bool = False) -> list[LogPiece]:
        tasks = self._tasks.get(handle.id) or [f"worker-{number}" for number in range(handle.job.nodes)]
        try:
            pull(self._cloud, handle, tasks)
        finally:
            # Whatever the interface says, the bucket may have it: a failed job's last words matter most.
            if last:
                fetch_whole(handle, tasks)
        return self._tail.new(handle)

    def stop(self, handle: JobHandle) -> None:
        job = self._cloud.show(handle.remote_id)
        if job.name != handle.name:
            raise UsageError(f"{handle.remote_id} is called {job.name}, not {handle.name}: not stopped")
        if not PHASES.get(job.phase, Phase.unknown).finished:
            self._cloud.stop(job.id)

    def fetch_outputs(self, handle: JobHandle, target: Path, rule: Rule = everything) -> Path:
        return fetch(handle, target, rule)

    def find(self, job: JobDescription, text: str, directory: Path) -> JobHandle:
        """A job that somebody else, or another machine, started: by its uuid or its exact name."""
        try:
            found = [self._cloud.show(text)]
        except (DeniedError, TransientError):
            raise
        except StorageError:  # no such uuid, or no uuid at all
            found = self._cloud.named(text)
        if len(found) != 1:
            near = ", ".join(each.name for each in self._cloud.like(text)[:5]) if not found else ""
            how_many = f"{len(found)} jobs are called that" if found else "no job is called that"
            numbers = ", ".join(each.id for each in found[:5]) or near
            raise UsageError(f"{text}: {how_many}", hint=f"there are: {numbers}" if numbers else None)
        name = found[0].name
        return JobHandle(
            id=f"{name}-{found[0].id[:8]}", name=name, backend=self.name, remote_id=found[0].id, job=job,
            directory=str(directory / f"{name}-{found[0].id[:8]}"), submitted=found[0].started or time.time(),
            outputs=output_places(job, name), log_url=_log_url(job, name),
        )  # fmt: skip

    def _new_name(self, job: JobDescription) -> str:
        if job.naming == "timestamp":
            name = f"{job.job_name}-{time.strftime('%Y_%m_%d-%H_%M_%S')}"
            # Also the first word with ModelArts: wrong keys are found before anything is uploaded.
            return name if not self._cloud.named(name) else f"{name}-2"
        if job.naming == "version":
            pattern = re.compile(re.escape(job.job_name) + r"-V(\d{1,6})")
            used = [int(match[1]) for each in self._cloud.like(job.job_name) if (match := pattern.fullmatch(each.name))]
            return f"{job.job_name}-V{max(used, default=0) + 1}"
        if self._cloud.named(job.job_name):
            raise UsageError(f"{job.job_name}: a job is called that already", hint="naming: timestamp, or version")
        return job.job_name

    def _create(self, name: str, request: object) -> CloudJob:
        """Started once: after a lost answer we look whether it was before asking again."""
        backoff, before = Backoff(first=0.5, most=10.0), {each.id for each in self._cloud.named(name)}
        for attempt in range(_CREATE_TRIES):
            try:
                return self._cloud.create(request)
            except TransientError as error:
                started = [each for each in self._cloud.named(name) if each.id not in before]
                if started:
                    return started[0]
                if attempt == _CREATE_TRIES - 1:
                    raise PacelineError(
                        f"{error}; nothing was started", hint="the code is uploaded; submit again"
                    ) from error
                time.sleep(backoff.wait(attempt, throttled=True))
        raise AssertionError("unreachable")

    def _reason(self, job: CloudJob, phase: Phase, workers: tuple[WorkerStatus, ...]) -> str:
        """Why it failed, or what it waits for: exit codes, and what the console shows as events."""
        if phase not in (Phase.failed, Phase.pending):
            return ""
        failed = [worker for worker in workers if worker.exit_code]
        said = [f"{worker.name}: exit code {worker.exit_code} {worker.message}".rstrip() for worker in failed[:3]]
        try:
            events = self._cloud.events(job.id)
        except StorageError:
            return "; ".join(said)  # the events would only say more of what the phase says already
        if phase is Phase.pending:
            return "; ".join(events[:1])
        return "; ".join([*said, *[event for event in events if event.startswith(("Error", "Warning"))][:3]])


def _log_url(job: JobDescription, name: str) -> str:
    """Beside the outputs, not among them: logs are no results."""
    base = job.log_url or (f"{job.output_url.rstrip('/')}/log" if job.output_url else "")
    return f"{base.rstrip('/')}/{name}/" if base else ""
