"""Which process of which job this is, as the launchers say it: torchrun, msrun, mpirun, srun, rank tables."""

from __future__ import annotations

import hashlib
import os
import socket
import sys

_RANK = ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_DEVICE = ("LOCAL_RANK", "DEVICE_ID", "ASCEND_DEVICE_ID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_JOB = (
    ("PACELINE_JOB",),
    ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
    ("MS_SCHED_HOST", "MS_SCHED_PORT"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("OMPI_MCA_ess_base_jobid",),
)
"""What all processes of a job share and other jobs do not, most telling first."""


def this_rank() -> int:
    """The global rank: of the process group where there is one, else of the launcher, else 0."""
    return _of_torch("get_rank", _RANK, 0)


def world_size() -> int:
    return _of_torch("get_world_size", _WORLD, 1)


def device_id() -> int:
    return _number(_DEVICE, 0)


def job_key() -> str:
    """A short name of this job, the same on all its ranks; a process without a launcher is a job of its own."""
    for names in _JOB:
        if os.environ.get(names[0]):
            said = "\0".join((names[0], *(os.environ.get(name, "") for name in names)))
            break
    else:
        said = f"{socket.gethostname()}\0{os.getpid()}"
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def _of_torch(question: str, names: tuple[str, ...], default: int) -> int:
    # Only asked where the job has loaded it: nothing is imported for the question's sake.
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(getattr(distributed, question)())
    return _number(names, default)


def _number(names: tuple[str, ...], default: int) -> int:
    said = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in said if value.isdecimal()), default)
