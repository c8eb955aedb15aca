"""Rank of this process, from the variables of its launcher; never assumes eight cards per host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.core.errors import UsageError

_RANK = ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM", "DEVICE_NUM", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_LOCAL_SIZE = (
    "LOCAL_WORLD_SIZE",
    "MS_LOCAL_WORKER_NUM",
    "DEVICE_NUM_PER_NODE",
    "MA_NUM_GPUS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)


@dataclass(frozen=True)
class Ranks:
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def node(self) -> int:
        return self.rank // self.local_size

    @property
    def is_leader(self) -> bool:
        """First rank of its host: downloads inputs and uploads files that belong to no rank."""
        return self.local_rank == 0

    @property
    def local(self) -> range:
        """The ranks of this host."""
        first = self.rank - self.local_rank
        return range(first, min(first + self.local_size, self.world_size))

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> Ranks:
        """
        >>> Ranks.from_environment({"RANK_ID": "9", "RANK_SIZE": "16", "MA_NUM_HOSTS": "4"})
        Ranks(rank=9, world_size=16, local_rank=1, local_size=4)
        """
        env = os.environ if env is None else env
        # Lightning names no global rank: on the first host the local one is the same.
        alone = _number(env, _LOCAL_RANK[:1], 0) if _number(env, ("NODE_RANK", "GROUP_RANK"), 0) == 0 else 0
        world = _number(env, _WORLD, 1)
        rank = _number(env, _RANK, alone if alone < world else 0)
        if not 0 <= rank < world:
            raise UsageError(f"invalid rank {rank} of world size {world}", hint=f"check {', '.join(_RANK + _WORLD)}")
        local_size = _number(env, _LOCAL_SIZE, 0) or _ranks_per_host(
            world, _number(env, ("MA_NUM_HOSTS", "VC_WORKER_NUM"), 1)
        )
        local_size = min(max(local_size, 1), world)
        return cls(rank, world, _number(env, _LOCAL_RANK, rank % local_size), local_size)


def _number(env: Mapping[str, str], names: tuple[str, ...], otherwise: int) -> int:
    for name in names:
        text = env.get(name, "").strip()
        if text:
            if not text.isdecimal():
                raise UsageError(f"{name}={text[:40]!r} is not a number")
            return int(text)
    return otherwise


def _ranks_per_host(world: int, hosts: int) -> int:
    return -(-world // max(hosts, 1))
