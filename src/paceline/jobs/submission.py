"""Starting a job: checked, uploaded, started, and written down."""

from __future__ import annotations

from pathlib import Path

from paceline.jobs.backend import JobHandle
from paceline.jobs.backends import backend_for
from paceline.jobs.description import JobDescription
from paceline.jobs.record import remember
from paceline.storage.report import OnProgress


def submit(job: JobDescription, directory: Path | None = None, *, progress: OnProgress | None = None) -> JobHandle:
    """Start it; `directory` (default: paceline-jobs/<name>-<time>) will hold log/ and output/."""
    raise NotImplementedError
