"""`paceline launch`: one process per card, ended together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.training.launcher import LaunchPlan, Show
from paceline.training.launcher import launch as run
from paceline.training.placement import Nodes
from paceline.training.rank_environment import Framework


def launch(
    command: Annotated[
        list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="script.py, -m module, or a program.")
    ],
    ranks: Annotated[
        int | None, typer.Option("--ranks", min=1, help="Processes on each host.  [default: ModelArts', else 1]")
    ] = None,
    hosts: Annotated[
        list[str] | None, typer.Option("--hosts", "--host", help="user@host:port over ssh; commas, or again for more.")
    ] = None,
    framework: Annotated[
        Framework, typer.Option("--framework", help="Whose environment the ranks get.")
    ] = Framework.torch,
    rank_table: Annotated[Path | None, typer.Option("--rank-table", help="Ranks and devices from this table.")] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Hosts, where each is started by somebody.")] = 1,
    node_rank: Annotated[int | None, typer.Option("--node-rank", min=0, help="Which of them this is.")] = None,
    master_addr: Annotated[str | None, typer.Option("--master-addr", help="Of node 0.")] = None,
    master_port: Annotated[
        int | None, typer.Option("--master-port", help="[default: a free one; 29500 on several hosts]")
    ] = None,
    log_dir: Annotated[Path, typer.Option("--log-dir", help="rank_N/output.log go here.")] = Path("log"),
    show: Annotated[Show, typer.Option("--show", help="Whose output is on the terminal too.")] = Show.first,
    grace: Annotated[float, typer.Option("--grace", min=0, help="Seconds from SIGTERM to SIGKILL.")] = 30.0,
    until_input_ends: Annotated[bool, typer.Option("--until-input-ends", hidden=True)] = False,
) -> None:
    """Start SCRIPT once per card and end all together: the first failure stops the others and is shown.

    The exit code is that of the rank that failed first. Signals go to all ranks; nobody outlives the launcher.

    Example:  paceline launch --ranks 8 train.py --epochs 3
              paceline launch --ranks 8 --hosts root@10.0.0.1,root@10.0.0.2 train.py
              paceline launch --ranks 8 --nodes 2 --node-rank 1 --master-addr 10.0.0.1 train.py
    """
    somebody = nodes > 1 or node_rank is not None or master_addr or master_port
    plan = LaunchPlan(
        as_program(command), ranks, _names(hosts or []), log_dir, {}, framework,
        Nodes(nodes, node_rank or 0, master_addr, master_port) if somebody else None,
        rank_table, show, grace, until_input_ends,
    )  # fmt: skip
    raise typer.Exit(run(plan))


def as_program(command: list[str]) -> tuple[str, ...]:
    """Python scripts and modules run in this Python.

    >>> as_program(["-m", "mine"])[1:]
    ('-m', 'mine')
    """
    import sys

    is_python = command[0] == "-m" or command[0].endswith(".py")
    return (sys.executable, *command) if is_python else tuple(command)


def _names(hosts: list[str]) -> tuple[str, ...]:
    return tuple(name.strip() for text in hosts for name in text.split(",") if name.strip())
