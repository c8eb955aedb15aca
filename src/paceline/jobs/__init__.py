"""Training jobs: submit, follow and stop them, on this machine, on Slurm or on ModelArts.

job = load_job("job.yaml")
backend = backend_for(job)
handle = submit(job)                        # checked, code uploaded, started, recorded
outcome = wait(handle, on_log=print)        # until it ends; raises nothing when the network goes away
backend.fetch_outputs(handle, Path("out"))

job_file      read a description from YAML; problems are reported with file and line
description   what a job is; import_config reads ais-bench's modelarts_config.py
backend       the protocol of all backends; local, slurm and modelarts are one module (or package) each
backends      finds a backend through entry points, ours and other packages'
job_registry  the jobs this user started, one file each, so that another shell can follow and stop them
"""

from __future__ import annotations

from paceline.jobs.backend import (
    JobBackend,
    JobHandle,
    JobOutcome,
    JobPhase,
    JobStatus,
    LogPiece,
    WorkerStatus,
)
from paceline.jobs.backends import backend_for
from paceline.jobs.description import JobDescription
from paceline.jobs.follow import wait
from paceline.jobs.job_file import load_job
from paceline.jobs.submission import submit
from paceline.jobs.yaml_to_struct import YamlDocument

__all__ = [
    "JobBackend",
    "JobDescription",
    "JobHandle",
    "JobOutcome",
    "JobPhase",
    "JobStatus",
    "LogPiece",
    "WorkerStatus",
    "YamlDocument",
    "backend_for",
    "load_job",
    "submit",
    "wait",
]
