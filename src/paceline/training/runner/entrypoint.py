"""Entry point of `paceline train`: run as a rank, as the launcher of ranks, or as MindSpore's scheduler."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import UsageError
from paceline.core.yaml_lines import YamlFile
from paceline.training.launcher.launch_plan import LaunchPlan, ShownRanks
from paceline.training.launcher.launcher import launch
from paceline.training.launcher.rank_environment import Framework, is_rank
from paceline.training.launcher.rank_placement import Nodes, modelarts_nodes
from paceline.training.runner.arguments import make_config
from paceline.training.runner.config import RunConfig
from paceline.training.session.output_tree import default_root

DEFAULT_CONFIG = Path(__file__).parents[1] / "reference" / "run_gpt2.yaml"


@dataclass(frozen=True)
class StartOptions:
    """Number and location of processes; ignored in a process that was started as a rank."""

    ranks: int | None = None
    hosts: tuple[str, ...] = ()
    nodes: Nodes | None = None
    show: ShownRanks = ShownRanks.first
    grace: float = 120.0
    """Seconds between SIGTERM and SIGKILL, for the final upload of a rank."""


def start(config_file: Path | None, arguments: Sequence[str], options: StartOptions) -> int:
    path = find_config(config_file)
    config = make_config(YamlFile.read(path), arguments)
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        return _run_scheduler()
    if is_rank() or not _has_ranks_to_start(config, options):
        from paceline.training.runner.modes import run

        run(config)
        return 0
    command = (sys.executable, "-m", "paceline", "train", "--config", str(path.absolute()), *arguments)
    plan = LaunchPlan(
        command,
        options.ranks,
        options.hosts,
        output_root(config) / "log",
        {},
        Framework(config.framework),
        options.nodes,
        None,
        options.show,
        options.grace,
    )
    return launch(plan)


def find_config(path: Path | None) -> Path:
    """The path as given, or below ModelArts' code directory, or a config shipped with Paceline."""
    if path is None:
        return DEFAULT_CONFIG
    places = [path, Path(os.environ.get("MA_JOB_DIR", ".")) / path, DEFAULT_CONFIG.with_name(path.name)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        shipped = ", ".join(sorted(each.name for each in DEFAULT_CONFIG.parent.glob("*.yaml")))
        raise UsageError(f"{path}: no such file", hint=f"shipped with Paceline: {shipped}")
    return found


def output_root(config: RunConfig) -> Path:
    return default_root(config.output_dir or None)


def _has_ranks_to_start(config: RunConfig, options: StartOptions) -> bool:
    if options.ranks is not None or options.hosts or options.nodes is not None:
        return True
    return config.use_parallel and modelarts_nodes(os.environ) is not None


def _run_scheduler() -> int:
    """Run MindSpore's scheduler; returns when all ranks have exited."""
    from mindspore import communication

    communication.init()
    return 0
