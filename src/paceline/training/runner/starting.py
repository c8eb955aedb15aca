"""One process, or many: as a rank, as the launcher of ranks, as MindSpore's meeting point; on ModelArts as it says."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UsageError
from paceline.training.launcher import LaunchPlan, Show, launch
from paceline.training.outputs import default_root
from paceline.training.placement import Nodes, on_modelarts
from paceline.training.rank_environment import Framework, is_rank
from paceline.training.runner.arguments import make_config
from paceline.training.runner.config import Config
from paceline.yaml_file import YamlFile

DEFAULT_CONFIG = Path(__file__).parents[1] / "reference" / "run_gpt2.yaml"


@dataclass(frozen=True)
class Start:
    """How many processes, where; all of it is ignored in a process that is a rank already."""

    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    nodes: Nodes | None = None
    show: Show = Show.first
    grace: float = 120.0
    """Seconds a stopped rank has to bring its outputs home."""


def start(config_file: Path | None, arguments: Sequence[str], how: Start) -> int:
    path = find_config(config_file)
    config = make_config(YamlFile.read(path), arguments)
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        return _meet()
    if is_rank() or not _has_ranks_to_start(config, how):
        from paceline.training.runner.modes import run

        run(config)
        return 0
    command = (sys.executable, "-m", "paceline", "train", "--config", str(path.absolute()), *arguments)
    show = Show.last if how.ranks is None and on_modelarts(os.environ) else how.show
    plan = LaunchPlan(
        command, how.ranks, how.hosts, output_root(config) / "log", {}, Framework(config.framework), how.nodes, None, show,
        how.grace,
    )  # fmt: skip
    return launch(plan)


def find_config(path: Path | None) -> Path:
    """As given, or below ModelArts' code directory, or one that comes with Paceline."""
    if path is None:
        return DEFAULT_CONFIG
    places = [path, Path(os.environ.get("MA_JOB_DIR", ".")) / path, DEFAULT_CONFIG.with_name(path.name)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        shipped = ", ".join(sorted(each.name for each in DEFAULT_CONFIG.parent.glob("*.yaml")))
        raise UsageError(f"{path}: no such file", hint=f"these come with Paceline: {shipped}")
    return found


def output_root(config: Config) -> Path:
    return default_root(config.output_dir or None)


def _has_ranks_to_start(config: Config, how: Start) -> bool:
    if how.ranks is not None or how.hosts or how.nodes is not None:
        return True
    return config.use_parallel and on_modelarts(os.environ) is not None


def _meet() -> int:
    """MindSpore's scheduler: returns when all ranks have left."""
    from mindspore import communication

    communication.init()
    return 0
