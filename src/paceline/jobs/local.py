"""Local backend: jobs as detached processes on this machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from paceline.core.errors import PacelineError
from paceline.jobs.backend import JobHandle, JobPhase, JobStatus, LogPiece
from paceline.jobs.code_upload import copy_code
from paceline.jobs.description import JobDescription
from paceline.jobs.detached_process import DetachedProcess, start_detached
from paceline.jobs.job_plan import JobPlan, make_job_plan
from paceline.jobs.job_registry import save_record
from paceline.jobs.job_state import read_process, read_status, write_process, write_status
from paceline.jobs.log_tail import LogTail
from paceline.jobs.outputs import fetch_outputs
from paceline.storage.file_selection import FileFilter, everything
from paceline.storage.transfer.transfer_report import OnProgress

_GRACE = 60.0
_START = 60.0
"""Seconds after which a process that has not written its process id is taken for dead."""


def create_backend(job: JobDescription) -> LocalBackend:
    """Entry point; needs nothing of the description."""
    return LocalBackend()


class LocalBackend:
    name = "local"
    poll_seconds = 0.5

    def __init__(self) -> None:
        self._tail = LogTail()

    def submit(self, job: JobDescription, directory: Path, *, progress: OnProgress | None = None) -> JobHandle:
        plan = make_job_plan(job, directory.name, directory)
        prepare(plan, progress)
        handle = handle_of(plan, self.name, plan.id)
        save_record(handle)
        command = [sys.executable, "-m", "paceline.jobs.node.node_runner", str(directory), "all"]
        # It also writes its process id itself, in case we are killed before this line is done.
        write_process(directory, start_detached(command, directory / "log" / "paceline.log", os.environ))
        return handle

    def recover(self, handle: JobHandle) -> JobHandle | None:
        return handle

    def status(self, handle: JobHandle) -> JobStatus:
        directory = Path(handle.directory)
        process = read_process(directory)
        if process is None and time.time() - handle.submitted < _START:
            return JobStatus(JobPhase.pending, "starting")
        alive = process is not None and process.alive
        # Read after looking at the process: a process that has just ended has written its status before.
        status = read_status(directory) or JobStatus(JobPhase.pending, "starting")
        if status.finished or alive:
            return status
        reason = f"its process no longer exists; see {handle.logs}/paceline.log"
        if any(each is not None and each.alive for each in _launchers(handle)):
            reason = f"its supervisor was killed, its ranks still run: `paceline job stop {handle.id}` ends them"
        return JobStatus(JobPhase.lost, "gone", reason, status.started)

    def sync_logs(self, handle: JobHandle, *, last: bool = False) -> list[LogPiece]:
        return self._tail.new(handle)

    def stop(self, handle: JobHandle) -> None:
        directory = Path(handle.directory)
        status = self.status(handle)
        if status.finished and status.phase is not JobPhase.lost:
            return
        # The launchers of a lost job may still run: they do not notice that their parent process was killed.
        _stop_processes(handle, ["job", *(f"worker-{node}" for node in range(handle.job.nodes))])
        ended = read_status(directory)
        if ended is None or not ended.finished:
            write_status(directory, JobStatus(JobPhase.stopped, "stopped", "", status.started, time.time()))

    def fetch_outputs(self, handle: JobHandle, target: Path, rule: FileFilter = everything) -> Path:
        return fetch_outputs(handle, target, rule)


def _launchers(handle: JobHandle) -> list[DetachedProcess | None]:
    return [read_process(Path(handle.directory), f"worker-{node}") for node in range(handle.job.nodes)]


def _stop_processes(handle: JobHandle, names: list[str]) -> None:
    for name in names:
        process = read_process(Path(handle.directory), name)
        if process is None:
            continue
        process.send(signal.SIGTERM)
        until = time.monotonic() + _GRACE
        while process.alive:
            if time.monotonic() > until:
                raise PacelineError(
                    f"{handle.id}: process {process.pid} did not stop within {_GRACE:.0f} s",
                    hint=f"kill -9 {process.pid}",
                )
            time.sleep(0.05)


def prepare(plan: JobPlan, progress: OnProgress | None) -> None:
    """The job's directory with a copy of the code: later edits do not change the job."""
    for name in ("log", "state"):
        (plan.path / name).mkdir(parents=True, exist_ok=True)
    copy_code(plan.job, plan.path / "code", progress)
    plan.write()


def handle_of(plan: JobPlan, backend: str, remote_id: str) -> JobHandle:
    return JobHandle(
        id=plan.id,
        name=plan.id,
        backend=backend,
        remote_id=remote_id,
        job=msgspec.structs.replace(plan.job, backend=backend),
        directory=plan.directory,
        submitted=time.time(),
        outputs=plan.destinations,
        warnings=_ignored_settings(plan.job),
    )


def _ignored_settings(job: JobDescription) -> tuple[str, ...]:
    steps = [name for name in ("wheels", "packages", "commands") if getattr(job.pre_start, name)]
    warning = f"pre_start: {', '.join(steps)} are ignored: only ModelArts runs them"
    return (warning,) if steps else ()
