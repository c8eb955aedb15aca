"""`paceline launch`: start one process per card, and stop all when one fails."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional

import typer
from typing_extensions import Annotated

from paceline.core.errors import UsageError
from paceline.training.launcher.launch_plan import LaunchPlan, ShownRanks
from paceline.training.launcher.rank_environment import Framework
from paceline.training.launcher.rank_placement import Nodes
from paceline.training.session.output_tree import default_root


def launch(
    command: Annotated[
        List[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="script.py, -m module, or a program.")
    ],
    ranks: Annotated[
        Optional[int],
        typer.Option("--ranks", min=1, help="Processes on each host.  [default: as ModelArts says, else 1]"),
    ] = None,
    hosts: Annotated[
        Optional[List[str]],
        typer.Option("--hosts", "--host", help="user@host:port over SSH; separated by commas, or repeated."),
    ] = None,
    framework: Annotated[
        Framework, typer.Option("--framework", help="Environment variables to set for the ranks.")
    ] = Framework.torch,
    rank_table: Annotated[
        Optional[Path], typer.Option("--rank-table", help="Take ranks and devices from this rank table.")
    ] = None,
    nodes: Annotated[
        int, typer.Option("--nodes", min=1, help="Number of hosts, where a launcher is started on each.")
    ] = 1,
    node_rank: Annotated[Optional[int], typer.Option("--node-rank", min=0, help="Number of this host, from 0.")] = None,
    master_addr: Annotated[Optional[str], typer.Option("--master-addr", help="Address of node 0.")] = None,
    master_port: Annotated[
        Optional[int], typer.Option("--master-port", help="[default: a free one; 29500 on several hosts]")
    ] = None,
    log_dir: Annotated[
        Optional[Path],
        typer.Option("--log-dir", help="Directory for rank_N/output.log.  [default: log; with uploads OUTPUT_DIR/log]"),
    ] = None,
    inputs: Annotated[
        Optional[List[str]],
        typer.Option(
            "--input",
            help="NAME=URL: fetched to each host before SCRIPT starts, and passed as --NAME=PATH or for {NAME}.",
        ),
    ] = None,
    remote_save_url: Annotated[
        str, typer.Option("--remote-save-url", help="Upload the output directory here, during and after training.")
    ] = "",
    output_dir: Annotated[
        Optional[Path],
        typer.Option(
            "--output-dir", help="Directory to upload.  [default: $LOCAL_DEFAULT_PATH, /cache on ModelArts, ./output]"
        ),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Record every step with the light recorder, below OUTPUT_DIR/recording.")
    ] = False,
    show: Annotated[ShownRanks, typer.Option("--show", help="Ranks whose output is also printed.")] = ShownRanks.first,
    grace: Annotated[float, typer.Option("--grace", min=0, help="Seconds from SIGTERM to SIGKILL.")] = 30.0,
    until_input_ends: Annotated[bool, typer.Option("--until-input-ends", hidden=True)] = False,
) -> None:
    """Start SCRIPT once per card; the first failure stops all ranks and is shown.

    The exit code is that of the rank that failed first. Signals are forwarded to all ranks; no rank outlives the launcher.

    Example:  paceline launch --ranks 8 train.py --epochs 3
              paceline launch --ranks 8 --hosts root@10.0.0.1,root@10.0.0.2 train.py
              paceline launch --input data=obs://bucket/wiki --remote-save-url obs://bucket/run1 --record train.py
              paceline launch --ranks 8 --nodes 2 --node-rank 1 --master-addr 10.0.0.1 train.py
    """
    several_nodes = nodes > 1 or node_rank is not None or master_addr or master_port
    plan = LaunchPlan(
        as_program(command),
        ranks,
        _names(hosts or []),
        log_dir or (default_root(output_dir) / "log" if remote_save_url else Path("log")),
        {},
        framework,
        Nodes(nodes, node_rank or 0, master_addr, master_port) if several_nodes else None,
        rank_table,
        show,
        grace,
        until_input_ends,
    )
    from paceline.training.launcher.wrapped_launch import Wrapping, launch_unwrapped, launch_wrapped, parse_inputs

    if not (inputs or remote_save_url or record or output_dir):
        raise typer.Exit(launch_unwrapped(plan))
    if plan.hosts:
        raise UsageError(
            "--input, --output-dir, --remote-save-url and --record do not work with --hosts",
            hint="start a launcher on each host, with --nodes and --node-rank",
        )
    wrapping = Wrapping(default_root(output_dir), parse_inputs(inputs or []), remote_save_url, record)
    raise typer.Exit(launch_wrapped(plan, wrapping))


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
