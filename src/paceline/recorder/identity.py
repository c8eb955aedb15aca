"""Rank, world size, host and job of this process, from torch.distributed or the launcher's environment variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paceline.core.errors import UsageError

_RANK = ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_DEVICE = ("LOCAL_RANK", "DEVICE_ID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_JOB = ("SLURM_JOB_ID", "PMIX_NAMESPACE", "MA_JOB_ID", "TORCHELASTIC_RUN_ID")
_RENDEZVOUS = (("MASTER_ADDR", "MASTER_PORT"), ("MS_SCHED_HOST", "MS_SCHED_PORT"))
_STORE_KEY = "paceline/job"


@dataclass(frozen=True)
class Identity:
    rank: int
    world_size: int
    device: int | None
    host: str
    job: str
    """The same on all ranks of a job, different for every other job; "" if it cannot be found out."""
    pid: int


def identify(rank: int | None = None, world_size: int | None = None, job: str | None = None) -> Identity:
    """From the arguments, else torch.distributed if initialised, else the environment, else rank 0 of 1."""
    torch = _initialised_torch()
    if rank is None:
        rank = torch.get_rank() if torch else _number_from(_RANK)
    if world_size is None:
        world_size = torch.get_world_size() if torch else _number_from(_WORLD)
    rank, world_size = rank or 0, world_size or 1
    if rank < 0 or world_size < 1:
        raise UsageError(f"invalid rank {rank} of world size {world_size}", hint="ranks are counted from 0")
    name = job if job is not None else os.environ.get("PACELINE_JOB") or _shared_job_id(torch) or _from_launcher()
    return Identity(rank, world_size, _number_from(_DEVICE), os.uname().nodename, name, os.getpid())


def _initialised_torch() -> Any:
    """torch.distributed if it is imported and initialised; never imported for this."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None


def _shared_job_id(torch: Any) -> str:
    """A random id that all ranks share through the store of the process group; the first rank there chooses it."""
    if torch is None:
        return ""
    try:
        store = torch.distributed_c10d._get_default_store()
        return bytes(store.compare_set(_STORE_KEY, "", os.urandom(6).hex())).decode()
    except (AttributeError, RuntimeError, NotImplementedError):
        return ""  # not every store supports compare_set; the launcher's variables are used instead


def _from_launcher() -> str:
    for name in _JOB:
        value = os.environ.get(name, "")
        if value and value != "none":
            return value
    for address, port in _RENDEZVOUS:
        if os.environ.get(port):
            return f"{os.environ.get(address, '')}:{os.environ[port]}"
    return ""


def _number_from(names: Iterable[str]) -> int | None:
    for name in names:
        text = os.environ.get(name, "").strip()
        if text:
            if not text.isdecimal():
                raise UsageError(f"{name}={text} is not a number", hint=f"unset {name}, or pass rank= and world_size=")
            return int(text)
    return None
