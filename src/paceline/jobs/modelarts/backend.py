"""ModelArts backend: upload code, create the training job, poll status and logs."""

from __future__ import annotations

import re
import time
from pathlib import Path

import msgspec

from paceline.core.errors import PacelineError, UsageError
from paceline.jobs.backend import JobHandle, JobPhase, JobStatus, LogPiece, WorkerStatus, WorkerUtilisation
from paceline.jobs.description import JobDescription
from paceline.jobs.job_plan import output_locations
from paceline.jobs.job_registry import save_record
from paceline.jobs.log_tail import LogTail
from paceline.jobs.modelarts.client import CloudJob, TrainingJobClient
from paceline.jobs.modelarts.logs import fetch_complete_logs, sync_worker_logs
from paceline.jobs.modelarts.offers import as_offered
from paceline.jobs.modelarts.request import create_request
from paceline.jobs.modelarts.upload import upload_code
from paceline.jobs.modelarts.utilisation import worker_utilisation
from paceline.jobs.outputs import fetch_outputs
from paceline.storage.file_selection import FileFilter, everything
from paceline.storage.store_errors import DeniedError, MissingError, StorageError, TransientError
from paceline.storage.transfer.retry import Backoff
from paceline.storage.transfer.transfer_report import OnProgress

PHASES = {
    "Creating": JobPhase.pending,
    "Pending": JobPhase.pending,
    "Running": JobPhase.running,
    "Terminating": JobPhase.stopping,
    "Completed": JobPhase.completed,
    "Failed": JobPhase.failed,
    "Abnormal": JobPhase.failed,
    "Terminated": JobPhase.stopped,
    "CreateFailed": JobPhase.failed,
    "TerminatedFailed": JobPhase.running,
    "Lost": JobPhase.lost,
}
"""ModelArts' phases; any other is JobPhase.unknown, and polling continues."""
_CREATE_TRIES = 5


def create_backend(job: JobDescription) -> ModelArtsBackend:
    """Entry point; the description says which ModelArts."""
    return ModelArtsBackend(job)


class ModelArtsBackend:
    name = "modelarts"
    poll_seconds = 10.0

    def __init__(self, job: JobDescription, backoff: Backoff | None = None) -> None:
        self._client = TrainingJobClient(job.modelarts, backoff)
        self._tail = LogTail()
        self._tasks: dict[str, list[str]] = {}

    def submit(self, job: JobDescription, directory: Path, *, progress: OnProgress | None = None) -> JobHandle:
        """Ask ModelArts first (credentials, project), then upload the code, then create the job."""
        name = self._new_name(job)
        job, notes = as_offered(job, self._client)
        outputs = output_locations(job, name)
        log_url = _log_url(job, name)
        warnings = upload_code(job, directory / "upload", progress)
        draft = JobHandle(
            id=directory.name,
            name=name,
            backend=self.name,
            remote_id="",
            job=job,
            directory=str(directory),
            submitted=time.time(),
            outputs=outputs,
            log_url=log_url,
            warnings=(*notes, *warnings),
        )
        save_record(draft)
        made = self._create(name, create_request(job, name, outputs, log_url))
        return msgspec.structs.replace(draft, remote_id=made.id)

    def recover(self, handle: JobHandle) -> JobHandle | None:
        found = self._client.find_by_name(handle.name)
        return msgspec.structs.replace(handle, remote_id=found[0].id) if len(found) == 1 else None

    def status(self, handle: JobHandle) -> JobStatus:
        try:
            job = self._client.get(handle.remote_id)
        except MissingError as error:
            return JobStatus(JobPhase.lost, "deleted", str(error))
        self._tasks[handle.id] = [task.name for task in job.tasks]
        phase = PHASES.get(job.phase, JobPhase.unknown)
        workers = tuple(WorkerStatus(task.name, task.exit_code, task.message) for task in job.tasks)
        reason = self._reason(job, phase, workers)
        return JobStatus(phase, job.phase, reason, job.started, job.ended if phase.finished else None, workers)

    def sync_logs(self, handle: JobHandle, *, last: bool = False) -> list[LogPiece]:
        tasks = self._tasks.get(handle.id) or [f"worker-{number}" for number in range(handle.job.nodes)]
        try:
            sync_worker_logs(self._client, handle, tasks)
        finally:
            # Also after a failed request, the bucket may have the logs: the last lines of a failed job matter most.
            if last:
                fetch_complete_logs(handle, tasks)
        return self._tail.new(handle)

    def utilisation(self, handle: JobHandle) -> tuple[WorkerUtilisation, ...]:
        tasks = self._tasks.get(handle.id) or [f"worker-{number}" for number in range(handle.job.nodes)]
        found = (worker_utilisation(task, self._client.metrics(handle.remote_id, task)) for task in tasks)
        return tuple(each for each in found if each is not None)

    def stop(self, handle: JobHandle) -> None:
        job = self._client.get(handle.remote_id)
        if job.name != handle.name:
            raise UsageError(f"{handle.remote_id} is named {job.name}, not {handle.name}: not stopped")
        if not PHASES.get(job.phase, JobPhase.unknown).finished:
            self._client.stop(job.id)

    def fetch_outputs(self, handle: JobHandle, target: Path, rule: FileFilter = everything) -> Path:
        return fetch_outputs(handle, target, rule)

    def find(self, job: JobDescription, text: str, directory: Path, *, only_running: bool = False) -> JobHandle:
        """A job that was started on another machine: by its uuid, its exact name, or the job_name of its description."""
        try:
            found = [self._client.get(text)]
        except (DeniedError, TransientError):
            raise
        except StorageError:  # not a uuid, or not a known one
            found = self._client.find_by_name(text) or self._versions(text)
        if only_running and len(found) > 1:
            found = [each for each in found if not PHASES.get(each.phase, JobPhase.unknown).finished] or found
        if len(found) != 1:
            near = ", ".join(each.name for each in self._client.search(text)[:5]) if not found else ""
            how_many = f"{len(found)} jobs have this name" if found else "job not found"
            numbers = ", ".join(each.id for each in found[:5]) or near
            raise UsageError(f"{text}: {how_many}", hint=f"known: {numbers}" if numbers else None)
        name = found[0].name
        return JobHandle(
            id=f"{name}-{found[0].id[:8]}",
            name=name,
            backend=self.name,
            remote_id=found[0].id,
            job=job,
            directory=str(directory / f"{name}-{found[0].id[:8]}"),
            submitted=found[0].started or time.time(),
            outputs=output_locations(job, name),
            log_url=_log_url(job, name),
        )

    def _versions(self, name: str) -> list[CloudJob]:
        """Jobs whose names were made from this one: NAME-V3, NAME-2026_11_17-02_26_39."""
        pattern = re.compile(re.escape(name) + r"-(V\d{1,6}|\d{4}(_\d\d){2}-\d\d(_\d\d){2}(-2)?)")
        return [each for each in self._client.search(name) if pattern.fullmatch(each.name)]

    def _new_name(self, job: JobDescription) -> str:
        if job.naming == "timestamp":
            name = f"{job.job_name}-{time.strftime('%Y_%m_%d-%H_%M_%S')}"
            # This is the first request: wrong credentials are found before anything is uploaded.
            return name if not self._client.find_by_name(name) else f"{name}-2"
        if job.naming == "version":
            pattern = re.compile(re.escape(job.job_name) + r"-V(\d{1,6})")
            used = [
                int(match[1]) for each in self._client.search(job.job_name) if (match := pattern.fullmatch(each.name))
            ]
            return f"{job.job_name}-V{max(used, default=0) + 1}"
        if self._client.find_by_name(job.job_name):
            raise UsageError(
                f"a job named {job.job_name} already exists", hint="set naming: timestamp, or naming: version"
            )
        return job.job_name

    def _create(self, name: str, request: object) -> CloudJob:
        """Create the job once: after a lost answer, look whether it was created before trying again."""
        backoff, before = (
            Backoff(first_wait=0.5, longest_wait=10.0),
            {each.id for each in self._client.find_by_name(name)},
        )
        for attempt in range(_CREATE_TRIES):
            try:
                return self._client.create(request)
            except TransientError as error:
                started = [each for each in self._client.find_by_name(name) if each.id not in before]
                if started:
                    return started[0]
                if attempt == _CREATE_TRIES - 1:
                    raise PacelineError(
                        f"{error}; the job was not started", hint="the code is uploaded; submit again"
                    ) from error
                time.sleep(backoff.wait(attempt, throttled=True))
        raise AssertionError("unreachable")

    def _reason(self, job: CloudJob, phase: JobPhase, workers: tuple[WorkerStatus, ...]) -> str:
        """Why it failed, or what it waits for: exit codes and the events that the console shows."""
        if phase not in (JobPhase.failed, JobPhase.pending):
            return ""
        failed = [worker for worker in workers if worker.exit_code]
        reasons = [f"{worker.name}: exit code {worker.exit_code} {worker.message}".rstrip() for worker in failed[:3]]
        try:
            events = self._client.events(job.id)
        except StorageError:
            return "; ".join(reasons)  # the reason is known without the events, only in less detail
        if phase is JobPhase.pending:
            return "; ".join(events[:1])
        return "; ".join([*reasons, *[event for event in events if event.startswith(("Error", "Warning"))][:3]])


def _log_url(job: JobDescription, name: str) -> str:
    """A directory next to the outputs, so that logs are not fetched as results."""
    base = job.log_url or (f"{job.output_url.rstrip('/')}/log" if job.output_url else "")
    return f"{base.rstrip('/')}/{name}/" if base else ""
