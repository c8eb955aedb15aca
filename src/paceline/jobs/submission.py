"""Starting a job: checked, uploaded, started, and written down."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

from paceline.errors import UsageError
from paceline.jobs.backend import JobHandle
from paceline.jobs.backends import backend_for
from paceline.jobs.description import JobDescription
from paceline.jobs.record import remember
from paceline.storage.report import OnProgress


def submit(job: JobDescription, directory: Path | None = None, *, progress: OnProgress | None = None) -> JobHandle:
    """Start it; `directory` (default: a new one in paceline-jobs) will hold log/ and output/, and names the job."""
    place = (directory or Path("paceline-jobs") / _new_name(job)).absolute()
    if place.exists() and any(place.iterdir()):
        raise UsageError(f"{place}: is there already", hint="every job has a directory of its own")
    place.mkdir(parents=True, exist_ok=True)
    handle = backend_for(job).submit(job, place, progress=progress)
    remember(handle)
    return handle


def _new_name(job: JobDescription) -> str:
    return f"{job.job_name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
