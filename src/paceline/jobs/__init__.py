"""Outside training: start a job, follow it, stop it, on this machine, on Slurm or on ModelArts.

job = load_job("job.yaml")
backend = backend_for(job)
handle = submit(job)                        # checked, code uploaded, started, written down
outcome = wait(handle, on_log=print)        # until it ends; raises nothing when the network goes away
backend.fetch_outputs(handle, Path("out"))

document      a description in YAML, and what is wrong in it by line
description   what a job is; jobs written for ModelArts' original config are imported
backend       what every place offers; local, slurm and modelarts are one file (or directory) each
record        the jobs this user started, one file each, so that another shell can follow and stop them
"""

from __future__ import annotations

from paceline.jobs.backend import (
    Backend,
    JobHandle,
    JobOutcome,
    JobStatus,
    LogPiece,
    Phase,
    WorkerStatus,
)
from paceline.jobs.backends import backend_for
from paceline.jobs.description import JobDescription, load_job
from paceline.jobs.document import Document
from paceline.jobs.submission import submit
from paceline.jobs.waiting import wait

__all__ = [
    "Backend", "Document", "JobDescription", "JobHandle", "JobOutcome", "JobStatus", "LogPiece", "Phase",
    "WorkerStatus", "backend_for", "load_job", "submit", "wait",
]  # fmt: skip
