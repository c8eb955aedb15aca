"""Jobs on this machine: a process of their own that outlives the command that started it."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from paceline.errors import PacelineError
from paceline.jobs.backend import JobHandle, JobStatus, LogPiece, Phase
from paceline.jobs.code import copy_code
from paceline.jobs.description import JobDescription
from paceline.jobs.log_tail import LogTail
from paceline.jobs.outputs import fetch
from paceline.jobs.plan import Plan, make_plan
from paceline.jobs.process import start_detached
from paceline.jobs.record import remember
from paceline.jobs.state import read_process, read_status, write_process, write_status
from paceline.storage.report import OnProgress
from paceline.storage.selection import Rule, everything

_GRACE = 60.0
_START = 60.0
"""Seconds after which a process that never said its number never will."""


class LocalBackend:
    name = "local"

    def __init__(self) -> None:
        self._tail = LogTail()

    def submit(self, job: JobDescription, directory: Path, *, progress: OnProgress | None = None) -> JobHandle:
        plan = make_plan(job, directory.name, directory)
        prepare(plan, progress)
        handle = handle_of(plan, self.name, plan.id)
        remember(handle)
        command = [sys.executable, "-m", "paceline.jobs.node", str(directory), "all"]
        # It writes its number down itself too, in case we are killed before this line ends.
        write_process(directory, start_detached(command, directory / "log" / "paceline.log", os.environ))
        return handle

    def recover(self, handle: JobHandle) -> JobHandle | None:
        return handle

    def status(self, handle: JobHandle) -> JobStatus:
        directory = Path(handle.directory)
        process = read_process(directory)
        if process is None and time.time() - handle.submitted < _START:
            return JobStatus(Phase.pending, "starting")
        alive = process is not None and process.alive
        # Read after looking at the process: one that has just ended has written how.
        status = read_status(directory) or JobStatus(Phase.pending, "starting")
        if status.finished or alive:
            return status
        return JobStatus(
            Phase.lost, "gone", f"its process is gone without a word; see {handle.logs}/paceline.log", status.started
        )

    def sync_logs(self, handle: JobHandle, *, last: bool = False) -> list[LogPiece]:
        return self._tail.new(handle)

    def stop(self, handle: JobHandle) -> None:
        directory = Path(handle.directory)
        status = self.status(handle)
        if status.finished and status.phase is not Phase.lost:
            return
        # A lost job's launchers may still run: nobody told them that their keeper was killed.
        _end(handle, ["job", *(f"worker-{node}" for node in range(handle.job.nodes))])
        ended = read_status(directory)
        if ended is None or not ended.finished:
            write_status(directory, JobStatus(Phase.stopped, "stopped", "", status.started, time.time()))

    def fetch_outputs(self, handle: JobHandle, target: Path, rule: Rule = everything) -> Path:
        return fetch(handle, target, rule)


def _end(handle: JobHandle, names: list[str]) -> None:
    for name in names:
        process = read_process(Path(handle.directory), name)
        if process is None:
            continue
        process.send(signal.SIGTERM)
        until = time.monotonic() + _GRACE
        while process.alive:
            if time.monotonic() > until:
                raise PacelineError(f"{handle.id}: process {process.pid} does not end", hint=f"kill -9 {process.pid}")
            time.sleep(0.05)


def prepare(plan: Plan, progress: OnProgress | None) -> None:
    """The job's directory with a copy of the code: what is edited here later does not reach the job."""
    for name in ("log", "state"):
        (plan.path / name).mkdir(parents=True, exist_ok=True)
    copy_code(plan.job, plan.path / "code", progress)
    plan.write()


def handle_of(plan: Plan, backend: str, remote_id: str) -> JobHandle:
    return JobHandle(
        id=plan.id,
        name=plan.id,
        backend=backend,
        remote_id=remote_id,
        job=msgspec.structs.replace(plan.job, backend=backend),
        directory=plan.directory,
        submitted=time.time(),
        outputs=plan.destinations,
        warnings=_left_out(plan.job),
    )


def _left_out(job: JobDescription) -> tuple[str, ...]:
    steps = [name for name in ("wheels", "packages", "commands") if getattr(job.pre_start, name)]
    said = f"pre_start: {', '.join(steps)}: for ModelArts only; nothing is installed on machines of your own"
    return (said,) if steps else ()
