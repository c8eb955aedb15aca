"""Who is recording: rank, world, host and job, from what the launcher or torch.distributed already knows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paceline.errors import UsageError

_RANK = ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_DEVICE = ("LOCAL_RANK", "DEVICE_ID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_JOB = ("SLURM_JOB_ID", "PMIX_NAMESPACE", "MA_JOB_ID", "TORCHELASTIC_RUN_ID")
_MEETING = (("MASTER_ADDR", "MASTER_PORT"), ("MS_SCHED_HOST", "MS_SCHED_PORT"))
_STORE_KEY = "paceline/job"


@dataclass(frozen=True)
class Identity:
    rank: int
    world_size: int
    device: int | None
    host: str
    job: str
    """Equal on all ranks of one job and on no other's; "" where nothing tells."""
    pid: int


def identify(rank: int | None = None, world_size: int | None = None, job: str | None = None) -> Identity:
    """What the caller says, else torch.distributed if it runs, else the environment, else one lone rank 0."""
    torch = _running_torch()
    if rank is None:
        rank = torch.get_rank() if torch else _number(_RANK)
    if world_size is None:
        world_size = torch.get_world_size() if torch else _number(_WORLD)
    rank, world_size = rank or 0, world_size or 1
    if rank < 0 or world_size < 1:
        raise UsageError(f"rank {rank} of {world_size}: no such rank", hint="ranks count from 0")
    named = job if job is not None else os.environ.get("PACELINE_JOB") or _agreed(torch) or _from_launcher()
    return Identity(rank, world_size, _number(_DEVICE), os.uname().nodename, named, os.getpid())


def _running_torch() -> Any:
    """torch.distributed where it is loaded and initialised; never imported for this."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None


def _agreed(torch: Any) -> str:
    """A name all ranks of the process group share through its store: whoever comes first chooses it."""
    if torch is None:
        return ""
    try:
        store = torch.distributed_c10d._get_default_store()
        return bytes(store.compare_set(_STORE_KEY, "", os.urandom(6).hex())).decode()
    except (AttributeError, RuntimeError, NotImplementedError):
        return ""  # some stores cannot compare; then the launcher's variables have to do


def _from_launcher() -> str:
    for name in _JOB:
        value = os.environ.get(name, "")
        if value and value != "none":
            return value
    for address, port in _MEETING:
        if os.environ.get(port):
            return f"{os.environ.get(address, '')}:{os.environ[port]}"
    return ""


def _number(names: Iterable[str]) -> int | None:
    for name in names:
        text = os.environ.get(name, "").strip()
        if text:
            if not text.isdecimal():
                raise UsageError(f"{name}={text}: not a number", hint=f"unset {name}, or pass rank= and world_size=")
            return int(text)
    return None
