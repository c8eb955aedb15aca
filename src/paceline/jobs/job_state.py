"""State files in a running job's directory: status, workers that ended, process ids; written atomically."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from paceline.core.atomic_write import atomic_write_text
from paceline.jobs.backend import JobStatus, WorkerStatus
from paceline.jobs.detached_process import DetachedProcess

_WORKER = re.compile(r"worker-(\d+)\.json")


class WorkerEnd(msgspec.Struct, frozen=True):
    worker: WorkerStatus
    ended: float


def write_status(directory: Path, status: JobStatus) -> None:
    _write(directory / "state" / "status.json", status)


def read_status(directory: Path) -> JobStatus | None:
    try:
        return msgspec.json.decode((directory / "state" / "status.json").read_bytes(), type=JobStatus)
    except FileNotFoundError:
        return None


def write_worker(directory: Path, end: WorkerEnd) -> None:
    _write(directory / "state" / f"{end.worker.name}.json", end)


def read_workers(directory: Path) -> tuple[WorkerStatus, ...]:
    """In the order in which they ended."""
    files = [path for path in (directory / "state").glob("*.json") if _WORKER.fullmatch(path.name)]
    ends = [msgspec.json.decode(path.read_bytes(), type=WorkerEnd) for path in files]
    return tuple(end.worker for end in sorted(ends, key=lambda end: end.ended))


def write_process(directory: Path, process: DetachedProcess, name: str = "job") -> None:
    _write(directory / "state" / f"{name}.process", process)


def read_process(directory: Path, name: str = "job") -> DetachedProcess | None:
    try:
        return msgspec.json.decode((directory / "state" / f"{name}.process").read_bytes(), type=DetachedProcess)
    except FileNotFoundError:
        return None


def _write(path: Path, value: object) -> None:
    atomic_write_text(path, msgspec.json.encode(value).decode() + "\n")
