"""The protocol of job backends, and the types it passes: handles, status, log pieces, outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from paceline.core.str_enum import StrEnum
from paceline.jobs.description import JobDescription
from paceline.storage.file_selection import FileFilter, everything
from paceline.storage.transfer.transfer_report import OnProgress


class JobPhase(StrEnum):
    """The state of a job; every backend's own states are translated to these."""

    pending = "pending"
    running = "running"
    stopping = "stopping"
    completed = "completed"
    failed = "failed"
    stopped = "stopped"
    lost = "lost"
    """It no longer exists, and its outcome is unknown."""
    unknown = "unknown"
    """The backend reports a state we do not know: never taken for an end."""

    @property
    def finished(self) -> bool:
        return self in (JobPhase.completed, JobPhase.failed, JobPhase.stopped, JobPhase.lost)


class WorkerStatus(msgspec.Struct, frozen=True):
    """One node of a job."""

    name: str
    """worker-0, worker-1, …"""
    exit_code: int | None = None
    message: str = ""


class JobStatus(msgspec.Struct, frozen=True):
    phase: JobPhase
    detail: str = ""
    """The backend's own name of the state."""
    reason: str = ""
    """Why it failed or waits, where the backend tells."""
    started: float | None = None
    """Seconds since 1970."""
    ended: float | None = None
    workers: tuple[WorkerStatus, ...] = ()

    @property
    def finished(self) -> bool:
        return self.phase.finished


class JobHandle(msgspec.Struct, frozen=True):
    """All it takes to find a job again; stored by `job_registry`, without any secret."""

    id: str
    """Our id: unique on this machine, what users type."""
    name: str
    """The job's name at the backend."""
    backend: str
    remote_id: str
    """The backend's id: a process, a Slurm job id, a ModelArts uuid; empty until the backend has returned it."""
    job: JobDescription
    directory: str
    """On this machine: log/, output/ and the job's state files."""
    submitted: float
    """Seconds since 1970."""
    outputs: dict[str, str] = {}
    """Where each output is written: name → path or URL."""
    log_url: str = ""
    warnings: tuple[str, ...] = ()
    """Found when it was started: stale files at code_url, settings that this backend ignores."""

    @property
    def logs(self) -> Path:
        return Path(self.directory) / "log"

    def log_name(self, worker: int) -> str:
        """ModelArts' documented name; the other backends use the same pattern."""
        return f"{self.backend}-job-{self.remote_id}-worker-{worker}.log"


class LogPiece(msgspec.Struct, frozen=True):
    """What a worker logged since the last poll."""

    worker: int
    text: str


class WorkerUtilisation(msgspec.Struct, frozen=True):
    """What a service measured of one node: mean use of its cores, memory and cards while the job ran, 0 to 1."""

    name: str
    """worker-0, worker-1, …"""
    cpu: float | None = None
    memory: float | None = None
    cards: float | None = None
    card_memory: float | None = None
    samples: int = 0
    """Of the use of the cards, or of the cores where it has none."""


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
    utilisation: tuple[WorkerUtilisation, ...] = ()
    """Empty where the backend measures nothing."""

    @property
    def succeeded(self) -> bool:
        return self.status.phase is JobPhase.completed


class JobBackend(Protocol):
    """Runs jobs: on this machine, on a cluster, in a cloud."""

    name: str
    poll_seconds: float
    """How often to ask for status and logs while a job is followed."""

    def submit(self, job: JobDescription, directory: Path, *, progress: OnProgress | None = None) -> JobHandle:
        """Upload code and files, verify them, and start the job; nothing is started when anything is missing.

        It is recorded just before it is started, so that it can be found if we are killed in between.
        """
        ...

    def recover(self, handle: JobHandle) -> JobHandle | None:
        """The handle with its remote id, after we were killed while starting it; None when it was never started."""
        ...

    def status(self, handle: JobHandle) -> JobStatus:
        """Raises TransientError when the backend cannot be reached: the job may well be running."""
        ...

    def sync_logs(self, handle: JobHandle, *, last: bool = False) -> list[LogPiece]:
        """Update the files in `handle.logs`, and return what is new."""
        ...

    def stop(self, handle: JobHandle) -> None:
        """Ask the job to stop, after making sure that its name is the one in the handle."""
        ...

    def fetch_outputs(self, handle: JobHandle, target: Path, rule: FileFilter = everything) -> Path:
        """Download all outputs (that match the rule) to `target`/<name of the output>; raises when there are none."""
        ...


@runtime_checkable
class UtilisationSource(Protocol):
    """A backend whose service measures how the nodes are used; others lack the method."""

    def utilisation(self, handle: JobHandle) -> tuple[WorkerUtilisation, ...]:
        """Of every node that the service knows something of."""
        ...
