"""`paceline train`: train the reference GPT-2; also a boot command for ModelArts."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import typer
from typing_extensions import Annotated

from paceline.training.launcher.launch_plan import ShownRanks
from paceline.training.launcher.rank_placement import Nodes
from paceline.training.runner.entrypoint import StartOptions, start


def train(
    context: typer.Context,
    config: Annotated[
        Optional[Path], typer.Option("--config", help="YAML file.  [default: run_gpt2.yaml of this package]")
    ] = None,
    ranks: Annotated[Optional[int], typer.Option("--ranks", min=1, help="Processes on each host.")] = None,
    hosts: Annotated[str, typer.Option("--hosts", help="user@host,user@host, started over SSH.")] = "",
    nodes: Annotated[
        int, typer.Option("--nodes", min=1, help="Number of hosts, where this command is started on each.")
    ] = 1,
    node_rank: Annotated[int, typer.Option("--node-rank", min=0, help="Number of this host, from 0.")] = 0,
    master_addr: Annotated[Optional[str], typer.Option("--master-addr", help="Address of node 0.")] = None,
    master_port: Annotated[
        Optional[int], typer.Option("--master-port", help="Port for the rendezvous of the ranks.")
    ] = None,
    show: Annotated[ShownRanks, typer.Option("--show", help="Ranks whose output is also printed.")] = ShownRanks.first,
    grace: Annotated[
        float, typer.Option("--grace", min=0, help="Seconds from SIGTERM to SIGKILL, to upload outputs.")
    ] = 120.0,
) -> None:
    """Train, finetune, evaluate or query the reference GPT-2: the workload of benchmarks, and an example to copy.

    Every key of the config is an argument: --run_mode train|finetune|eval|predict, --use_parallel, --load_checkpoint,
    --resume_training, --remote_save_url, --output_dir, --profile, --only_save_strategy, --epochs, --batch_size,
    --train_dataset_dir, --eval_dataset_dir, --predict_data, …; nested ones as --runner_config.epochs=3 or
    --callbacks.1.save_checkpoint_steps=100. As a boot command on ModelArts, nodes and cards are taken from the platform.

    Example:  paceline train --ranks 4 --train_dataset_dir book.txt --remote_save_url obs://bucket/job7
              paceline train --ranks 4 --resume_training True
              paceline train --config run_gpt2_lora.yaml --load_checkpoint obs://bucket/job7/checkpoint
              paceline train --run_mode predict --load_checkpoint output/checkpoint --predict_data "The slowest"
    """
    several_nodes = nodes > 1 or master_addr or master_port
    how = StartOptions(
        ranks,
        tuple(name.strip() for name in hosts.split(",") if name.strip()),
        Nodes(nodes, node_rank, master_addr, master_port) if several_nodes else None,
        show,
        grace,
    )
    raise typer.Exit(start(config, context.args, how))
