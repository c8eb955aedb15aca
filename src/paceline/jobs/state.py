"""What a job says of itself while it runs: small files in its directory, each whole or not there."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from paceline.jobs.backend import JobStatus, WorkerStatus
from paceline.jobs.process import Process
from paceline.whole import write_whole

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


def write_process(directory: Path, process: Process, name: str = "job") -> None:
    _write(directory / "state" / f"{name}.process", process)


def read_process(directory: Path, name: str = "job") -> Process | None:
    try:
        return msgspec.json.decode((directory / "state" / f"{name}.process").read_bytes(), type=Process)
    except FileNotFoundError:
        return None


def _write(path: Path, value: object) -> None:
    write_whole(path, msgspec.json.encode(value).decode() + "\n")
