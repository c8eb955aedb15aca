"""LaunchPlan: which command runs on which ranks and hosts, and whose output is shown."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from paceline.training.launcher.rank_environment import Framework
from paceline.training.launcher.rank_placement import Nodes

RUN_ID = "PACELINE_RUN_ID"


class ShownRanks(str, Enum):
    """Ranks whose output is also printed to the terminal: the first of each host is the one that logs the losses."""

    first = "first"
    last = "last"
    all = "all"
    none = "none"


@dataclass(frozen=True)
class LaunchPlan:
    command: tuple[str, ...]
    ranks: int | None = None
    """Ranks per host; None: from ModelArts or the rank table, else one."""
    hosts: tuple[str, ...] = ()
    log_dir: Path = Path("log")
    env: Mapping[str, str] = field(default_factory=dict)
    framework: Framework = Framework.torch
    nodes: Nodes | None = None
    rank_table: Path | None = None
    show: ShownRanks = ShownRanks.first
    grace: float = 30.0
    """Seconds between SIGTERM and SIGKILL."""
    until_input_ends: bool = False
    """Stop when standard input is closed, that is, when a remote launcher exits."""


def new_run_id() -> str:
    """Id that distinguishes this start of a job from others."""
    return secrets.token_hex(8)
