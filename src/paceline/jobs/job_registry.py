"""Registry of the jobs this user started: one JSON file each, for `paceline job list`, `follow` and `stop`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path

import msgspec

from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import UsageError
from paceline.jobs.backend import JobHandle, JobStatus

_log = logging.getLogger("paceline")


class JobRecord(msgspec.Struct, frozen=True):
    """A job and its last known status."""

    handle: JobHandle
    status: JobStatus | None = None
    checked: float | None = None
    """When its backend reported this status, in seconds since 1970."""


def state_root() -> Path:
    """$PACELINE_STATE, else ~/.local/state/paceline."""
    named = os.environ.get("PACELINE_STATE")
    return Path(named) if named else Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "paceline"


def save_record(handle: JobHandle, status: JobStatus | None = None) -> None:
    """Written atomically, readable only by its owner: descriptions may hold private paths."""
    _directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    record = msgspec.json.format(msgspec.json.encode(JobRecord(handle, status, time.time())), indent=1)
    atomic_write_text(_directory() / f"{handle.id}.json", record.decode() + "\n")


def delete_record(name: str) -> None:
    """Remove the record of a job that was never started."""
    (_directory() / f"{name}.json").unlink(missing_ok=True)


def list_records() -> list[JobRecord]:
    """Newest first; a file that cannot be read is logged and skipped."""
    return sorted(_readable(), key=lambda record: record.handle.submitted, reverse=True)


def find_record(text: str, narrow: Callable[[list[JobRecord]], list[JobRecord]] = list) -> JobRecord:
    """By our id, the backend's id or the exact name; `narrow` chooses where several have it, else that raises."""
    known = list_records()
    for matches in (
        [record for record in known if record.handle.id == text],
        [record for record in known if record.handle.remote_id == text],
        [record for record in known if text in (record.handle.name, record.handle.job.job_name)],
    ):
        if len(matches) > 1:
            matches = narrow(matches) or matches
        if len(matches) == 1:
            return matches[0]
        if matches:
            ids = ", ".join(record.handle.id for record in matches[:5])
            raise UsageError(f"{text}: {len(matches)} jobs have this name", hint=f"use one of the ids: {ids}")
    near = get_close_matches(text, [record.handle.id for record in known], n=1)
    hint = f"did you mean {near[0]}?" if near else "paceline job list shows the jobs started on this machine"
    raise UsageError(f"{text}: job not found", hint=hint)


def _directory() -> Path:
    return state_root() / "jobs"


def _readable() -> Iterator[JobRecord]:
    for path in _directory().glob("*.json"):
        try:
            yield msgspec.json.decode(path.read_bytes(), type=JobRecord)
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("%s: not a job record: %s", path, error)
