"""Starting a job: checked, uploaded, started, and written down."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

from paceline.errors import PacelineError, UsageError
from paceline.jobs.backend import JobHandle
from paceline.jobs.backends import backend_for
from paceline.jobs.description import JobDescription
from paceline.jobs.record import forget, records, remember
from paceline.storage.report import OnProgress
from paceline.storage.store import TransientError


def submit(job: JobDescription, directory: Path | None = None, *, progress: OnProgress | None = None) -> JobHandle:
    """Start it; `directory` (default: a new one in paceline-jobs) will hold log/ and output/, and names the job."""
    place = (directory or Path("paceline-jobs") / _new_name(job)).absolute()
    if place.exists() and any(place.iterdir()):
        raise UsageError(f"{place}: is there already", hint="every job has a directory of its own")
    _refuse_second(place)
    backend = backend_for(job)
    place.mkdir(parents=True, exist_ok=True)
    try:
        handle = backend.submit(job, place, progress=progress)
    except TransientError as error:
        if not any(record.handle.id == place.name for record in records()):
            raise
        raise PacelineError(
            f"{error}; whether the job was started is not known", hint=f"paceline job follow {place.name} finds out"
        ) from error
    except PacelineError:
        forget(place.name)
        raise
    remember(handle)
    return handle


def _refuse_second(place: Path) -> None:
    """A job is called as its directory is; another one's record is never written over."""
    for record in records():
        ended = record.status is not None and record.status.finished
        if record.handle.id == place.name and not (ended and Path(record.handle.directory) == place):
            raise UsageError(
                f"a job is called {place.name} already ({record.handle.directory})", hint="choose another --into"
            )


def recover(handle: JobHandle) -> JobHandle:
    """A handle that can be used: its number is asked for where we were killed before we heard it."""
    if handle.remote_id:
        return handle
    found = backend_for(handle).recover(handle)
    if found is None:
        raise UsageError(f"{handle.id}: was never started", hint="submitting it was interrupted; submit it again")
    remember(found)
    return found


def _new_name(job: JobDescription) -> str:
    return f"{job.job_name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
