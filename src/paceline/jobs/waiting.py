"""Following a job to its end, whatever happens to the network in between."""

from __future__ import annotations

from collections.abc import Callable

from paceline.jobs.backend import JobHandle, JobOutcome, JobStatus, LogPiece

OnLog = Callable[[LogPiece], None]
OnStatus = Callable[[JobStatus], None]


def wait(
    handle: JobHandle,
    *,
    on_log: OnLog | None = None,
    on_status: OnStatus | None = None,
    interval: float | None = None,
) -> JobOutcome:
    """Poll until the job ends; logs are synced incrementally, and once more at the end whatever the outcome."""
    raise NotImplementedError
