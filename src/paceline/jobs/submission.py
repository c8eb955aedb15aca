"""Submit a job: check its directory and name, upload, start, and record it."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

from paceline.core.errors import PacelineError, UsageError
from paceline.jobs.backend import JobHandle
from paceline.jobs.backends import backend_for
from paceline.jobs.cloud_place import bucket_urls
from paceline.jobs.description import JobDescription
from paceline.jobs.job_registry import delete_record, list_records, save_record
from paceline.storage.reachability import require_reachable
from paceline.storage.store_errors import TransientError
from paceline.storage.transfer.transfer_report import OnProgress


def submit(job: JobDescription, directory: Path | None = None, *, progress: OnProgress | None = None) -> JobHandle:
    """Start a job; `directory` (default: a new one in paceline-jobs) will hold log/ and output/, and names the job."""
    place = (directory or Path("paceline-jobs") / _new_name(job)).absolute()
    if place.exists() and any(place.iterdir()):
        raise UsageError(f"{place} already exists and is not empty", hint="choose another --into")
    _refuse_used_name(place)
    backend = backend_for(job)
    if job.backend != "slurm":  # there the nodes do it, which may have another network than this machine
        for url in bucket_urls(job):
            require_reachable(url)
    place.mkdir(parents=True, exist_ok=True)
    try:
        handle = backend.submit(job, place, progress=progress)
    except TransientError as error:
        if not any(record.handle.id == place.name for record in list_records()):
            raise
        raise PacelineError(
            f"{error}; it is not known whether the job was started",
            hint=f"find out with: paceline job follow {place.name}",
        ) from error
    except PacelineError:
        delete_record(place.name)
        raise
    save_record(handle)
    return handle


def _refuse_used_name(place: Path) -> None:
    """A job is named after its directory; the record of another job is never overwritten."""
    for record in list_records():
        ended = record.status is not None and record.status.finished
        if record.handle.id == place.name and not (ended and Path(record.handle.directory) == place):
            raise UsageError(
                f"a job named {place.name} already exists ({record.handle.directory})", hint="choose another --into"
            )


def recover_handle(handle: JobHandle) -> JobHandle:
    """A handle with a remote id: the backend is asked for it when we were killed before it was recorded."""
    if handle.remote_id:
        return handle
    found = backend_for(handle).recover(handle)
    if found is None:
        raise UsageError(f"{handle.id} was never started", hint="its submission was interrupted; submit it again")
    save_record(found)
    return found


def _new_name(job: JobDescription) -> str:
    return f"{job.job_name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
