"""What a rank finds in its environment: torch's names, MindSpore's (rank table or msrun's way), Ascend's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from paceline.training.placement import Placement, RankPlace

SCHEDULER = "scheduler"
_TOPOLOGY_TIMEOUT = "600"


class Framework(str, Enum):
    torch = "torch"
    mindspore = "mindspore"


def of_rank(placement: Placement, place: RankPlace, framework: Framework, table: Path | None) -> dict[str, str]:
    """Added to the launcher's own environment."""
    found = {
        "RANK_ID": str(place.rank), "RANK_SIZE": str(placement.world_size), "DEVICE_ID": str(place.device),
        "ASCEND_DEVICE_ID": str(place.device), "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(len(placement.here)), "DEVICE_NUM_PER_NODE": str(len(placement.here)),
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    if framework is Framework.torch:
        return found | {
            "RANK": str(place.rank), "WORLD_SIZE": str(placement.world_size), "GROUP_RANK": str(placement.node),
            "MASTER_ADDR": placement.master_address, "MASTER_PORT": str(placement.master_port),
        }  # fmt: skip
    if table is not None:
        return found | {"RANK_TABLE_FILE": str(table)}
    if not needs_scheduler(placement, framework, table):
        return found
    return found | _meeting(placement) | {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(place.rank)}


def needs_scheduler(placement: Placement, framework: Framework, table: Path | None) -> bool:
    """MindSpore's ranks meet by a rank table, or else (msrun's way) through one more process."""
    return framework is Framework.mindspore and table is None and placement.world_size > 1


def of_scheduler(placement: Placement) -> dict[str, str]:
    """MindSpore's meeting point on node 0: the same command, in another role."""
    return _meeting(placement) | {"MS_ROLE": "MS_SCHED", "RANK_ID": "0", "PYTHONUNBUFFERED": "1"}


def _meeting(placement: Placement) -> dict[str, str]:
    return {
        "MS_WORKER_NUM": str(placement.world_size), "MS_SCHED_HOST": placement.master_address,
        "MS_SCHED_PORT": str(placement.master_port),
        "MS_TOPO_TIMEOUT": os.environ.get("MS_TOPO_TIMEOUT", _TOPOLOGY_TIMEOUT),
    }  # fmt: skip


def is_rank(environ: Mapping[str, str] = os.environ) -> bool:
    """Somebody (this launcher, torchrun, msrun, ModelArts' rank-table boot) has already made this process a rank."""
    return bool({"RANK", "RANK_ID", "MS_ROLE", "LOCAL_RANK"} & environ.keys())
