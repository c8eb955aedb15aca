"""Environment variables of a rank: for torch, MindSpore (rank table or as msrun sets them) and Ascend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from paceline.training.launcher.rank_placement import Placement, RankPlace

SCHEDULER = "scheduler"
_TOPOLOGY_TIMEOUT = "600"


class Framework(str, Enum):
    torch = "torch"
    mindspore = "mindspore"


def rank_variables(placement: Placement, slot: RankPlace, framework: Framework, table: Path | None) -> dict[str, str]:
    """Variables that are added to the launcher's environment."""
    found = {
        "RANK_ID": str(slot.rank),
        "RANK_SIZE": str(placement.world_size),
        "DEVICE_ID": str(slot.device),
        "ASCEND_DEVICE_ID": str(slot.device),
        "LOCAL_RANK": str(slot.local_rank),
        "LOCAL_WORLD_SIZE": str(len(placement.here)),
        "DEVICE_NUM_PER_NODE": str(len(placement.here)),
        "PYTHONUNBUFFERED": "1",
    }
    if framework is Framework.torch:
        return {
            **found,
            "RANK": str(slot.rank),
            "WORLD_SIZE": str(placement.world_size),
            "GROUP_RANK": str(placement.node),
            "MASTER_ADDR": placement.master_address,
            "MASTER_PORT": str(placement.master_port),
        }
    if table is not None:
        return {**found, "RANK_TABLE_FILE": str(table)}
    if not needs_scheduler(placement, framework, table):
        return found
    return {**found, **_rendezvous(placement), "MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(slot.rank)}


def needs_scheduler(placement: Placement, framework: Framework, table: Path | None) -> bool:
    """MindSpore's ranks find each other by a rank table, or (as with msrun) through a scheduler process."""
    return framework is Framework.mindspore and table is None and placement.world_size > 1


def scheduler_variables(placement: Placement) -> dict[str, str]:
    """Variables of MindSpore's scheduler on node 0: the same command in another role."""
    return _rendezvous(placement) | {"MS_ROLE": "MS_SCHED", "RANK_ID": "0", "PYTHONUNBUFFERED": "1"}


def _rendezvous(placement: Placement) -> dict[str, str]:
    return {
        "MS_WORKER_NUM": str(placement.world_size),
        "MS_SCHED_HOST": placement.master_address,
        "MS_SCHED_PORT": str(placement.master_port),
        "MS_TOPO_TIMEOUT": os.environ.get("MS_TOPO_TIMEOUT", _TOPOLOGY_TIMEOUT),
    }


def is_rank(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher (this one, torchrun, msrun, ModelArts' rank-table boot) started this process as a rank."""
    return bool({"RANK", "RANK_ID", "MS_ROLE", "LOCAL_RANK"} & environ.keys())
