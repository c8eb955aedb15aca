"""From a job to the place that runs it. The list of backends is literal."""

from __future__ import annotations

from paceline.jobs.backend import Backend, JobHandle
from paceline.jobs.description import JobDescription


def backend_for(job: JobDescription | JobHandle) -> Backend:
    """The backend a description asks for, or the one a job was started on; its libraries are loaded now."""
    described = job.job if isinstance(job, JobHandle) else job
    if job.backend == "slurm":
        from paceline.jobs.slurm import SlurmBackend

        return SlurmBackend()
    if job.backend == "modelarts":
        from paceline.jobs.modelarts.backend import ModelArtsBackend

        return ModelArtsBackend(described)
    from paceline.jobs.local import LocalBackend

    return LocalBackend()
