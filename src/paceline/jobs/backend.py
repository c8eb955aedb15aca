"""What every place that runs jobs offers: one small protocol, and what goes through it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from paceline.jobs.description import JobDescription
from paceline.storage.report import OnProgress
from paceline.storage.selection import Rule, everything


class Phase(StrEnum):
    """Where a job is; every backend's own words are translated to these."""

    pending = "pending"
    running = "running"
    stopping = "stopping"
    completed = "completed"
    failed = "failed"
    stopped = "stopped"
    lost = "lost"
    """It is gone without having said how it ended."""
    unknown = "unknown"
    """The backend says a word we do not know: never taken for an end."""

    @property
    def finished(self) -> bool:
        return self in (Phase.completed, Phase.failed, Phase.stopped, Phase.lost)


class WorkerStatus(msgspec.Struct, frozen=True):
    """One node of a job."""

    name: str
    """worker-0, worker-1, …"""
    exit_code: int | None = None
    message: str = ""


class JobStatus(msgspec.Struct, frozen=True):
    phase: Phase
    detail: str = ""
    """The backend's own word for it."""
    reason: str = ""
    """Why it failed or waits, as far as the backend tells."""
    started: float | None = None
    """Seconds since 1970."""
    ended: float | None = None
    workers: tuple[WorkerStatus, ...] = ()

    @property
    def finished(self) -> bool:
        return self.phase.finished


class JobHandle(msgspec.Struct, frozen=True):
    """All it takes to find a job again; written down by `record`, and nothing secret in it."""

    id: str
    """Ours: unique on this machine, what users type."""
    name: str
    """What the backend calls it."""
    backend: str
    remote_id: str
    """The backend's number for it: a process, a Slurm job id, a ModelArts uuid; empty before it was told."""
    job: JobDescription
    directory: str
    """Here: log/, output/ and what the job says of itself."""
    submitted: float
    """Seconds since 1970."""
    outputs: dict[str, str] = {}
    """Where each output really goes: name → path or URL."""
    log_url: str = ""
    warnings: tuple[str, ...] = ()
    """What was odd when it was started: files that nobody uploaded, steps that this backend has not."""

    @property
    def logs(self) -> Path:
        return Path(self.directory) / "log"

    def log_name(self, worker: int) -> str:
        """ModelArts' documented name; the other backends use the same pattern."""
        return f"{self.backend}-job-{self.remote_id}-worker-{worker}.log"


class LogPiece(msgspec.Struct, frozen=True):
    """What a worker said since we last looked."""

    worker: int
    text: str


class JobOutcome(msgspec.Struct, frozen=True, tag="paceline.job-outcome/1", tag_field="schema"):
    """How a job ended; one schema for every backend."""

    id: str
    name: str
    backend: str
    status: JobStatus
    submitted: float
    logs: tuple[str, ...]
    outputs: dict[str, str]
    warnings: tuple[str, ...] = ()

    @property
    def succeeded(self) -> bool:
        return self.status.phase is Phase.completed


class Backend(Protocol):
    """A place that runs jobs."""

    name: str

    def submit(self, job: JobDescription, directory: Path, *, progress: OnProgress | None = None) -> JobHandle:
        """Upload what has to be there, verified, and start it; nothing is started when anything is missing.

        It is written down just before it is started, so that it can be found if we are killed in between.
        """
        ...

    def recover(self, handle: JobHandle) -> JobHandle | None:
        """The number of a job whose start was the last thing heard of; None when it was never started."""
        ...

    def status(self, handle: JobHandle) -> JobStatus:
        """Raises TransientError when the backend cannot be reached: that says nothing of the job."""
        ...

    def sync_logs(self, handle: JobHandle, *, last: bool = False) -> list[LogPiece]:
        """Bring `handle.logs` up to date; what is new is returned."""
        ...

    def stop(self, handle: JobHandle) -> None:
        """Ask it to end: only after making sure that it is the job that was meant."""
        ...

    def fetch_outputs(self, handle: JobHandle, target: Path, rule: Rule = everything) -> Path:
        """All outputs (that the rule takes) below `target`/<name of the output>; fails when there are none."""
        ...
