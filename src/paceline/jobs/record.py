"""The jobs this user started: one JSON file each, so that another shell can list, follow and stop them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import msgspec

from paceline.errors import UsageError
from paceline.jobs.backend import JobHandle, JobStatus
from paceline.whole import write_whole

_log = logging.getLogger("paceline")


class Record(msgspec.Struct, frozen=True):
    """A job, and the last that was heard of it."""

    handle: JobHandle
    status: JobStatus | None = None


def state_root() -> Path:
    """$PACELINE_STATE, else ~/.local/state/paceline."""
    named = os.environ.get("PACELINE_STATE")
    return Path(named) if named else Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "paceline"


def remember(handle: JobHandle, status: JobStatus | None = None) -> None:
    """Whole or not at all: a killed process leaves the old record or the new one. Descriptions are nobody else's."""
    _directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    record = msgspec.json.format(msgspec.json.encode(Record(handle, status)), indent=1)
    write_whole(_directory() / f"{handle.id}.json", record.decode() + "\n")


def forget(name: str) -> None:
    """A job that was never started."""
    (_directory() / f"{name}.json").unlink(missing_ok=True)


def records() -> list[Record]:
    """Newest first; a file that cannot be read is said and skipped."""
    return sorted(_readable(), key=lambda record: record.handle.submitted, reverse=True)


def find(text: str) -> Record:
    """By our id, the backend's number or the exact name; a name several jobs have is not guessed about."""
    known = records()
    for matches in (
        [record for record in known if record.handle.id == text],
        [record for record in known if record.handle.remote_id == text],
        [record for record in known if text in (record.handle.name, record.handle.job.job_name)],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            ids = ", ".join(record.handle.id for record in matches[:5])
            raise UsageError(f"{text}: {len(matches)} jobs are called that", hint=f"say which: {ids}")
    near = get_close_matches(text, [record.handle.id for record in known], n=1)
    hint = f"{near[0]} was meant?" if near else "paceline job list shows the jobs started on this machine"
    raise UsageError(f"{text}: no such job", hint=hint)


def _directory() -> Path:
    return state_root() / "jobs"


def _readable() -> Iterator[Record]:
    for path in _directory().glob("*.json"):
        try:
            yield msgspec.json.decode(path.read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("%s: not a job's record: %s", path, error)
