"""`paceline train`: the runner; a boot file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.training.launcher import Show
from paceline.training.placement import Nodes
from paceline.training.runner.starting import Start, start


def train(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", help="YAML file.  [default: run_gpt2.yaml, which comes along]")
    ] = None,
    ranks: Annotated[int | None, typer.Option("--ranks", min=1, help="Processes on each host.")] = None,
    hosts: Annotated[str, typer.Option("--hosts", help="user@host,user@host: over ssh.")] = "",
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Hosts, where each is started by somebody.")] = 1,
    node_rank: Annotated[int, typer.Option("--node-rank", min=0, help="Which of them this is.")] = 0,
    master_addr: Annotated[str | None, typer.Option("--master-addr", help="Of node 0.")] = None,
    master_port: Annotated[int | None, typer.Option("--master-port", help="Where ranks meet.")] = None,
    show: Annotated[Show, typer.Option("--show", help="Whose output is on the terminal too.")] = Show.first,
    grace: Annotated[
        float, typer.Option("--grace", min=0, help="Seconds a stopped rank has to bring its outputs home.")
    ] = 120.0,
) -> None:
    """Train, finetune, evaluate or ask the reference GPT-2: the workload for benchmarks, and the example to copy.

    Every key of the config is an argument: --run_mode train|finetune|eval|predict, --use_parallel, --load_checkpoint,
    --resume_training, --remote_save_url, --output_dir, --profile, --only_save_strategy, --epochs, --batch_size,
    --train_dataset_dir, --eval_dataset_dir, --predict_data, …; nested ones as --runner_config.epochs=3 or
    --callbacks.1.save_checkpoint_steps=100. On ModelArts this is the boot command: nodes and cards are the platform's.

    Example:  paceline train --ranks 4 --train_dataset_dir book.txt --remote_save_url obs://bucket/job7
              paceline train --ranks 4 --resume_training True
              paceline train --config run_gpt2_lora.yaml --load_checkpoint obs://bucket/job7/checkpoint
              paceline train --run_mode predict --load_checkpoint output/checkpoint --predict_data "The slowest"
    """
    somebody = nodes > 1 or master_addr or master_port
    how = Start(
        ranks,
        tuple(name.strip() for name in hosts.split(",") if name.strip()),
        Nodes(nodes, node_rank, master_addr, master_port) if somebody else None,
        show,
        grace,
    )
    raise typer.Exit(start(config, context.args, how))
