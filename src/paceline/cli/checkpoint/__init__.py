"""`paceline checkpoint`: reshard, convert, merge, inspect and verify checkpoints; one module per group of commands."""

from __future__ import annotations

import typer

from paceline.cli.checkpoint.inspect import inspect
from paceline.cli.checkpoint.resume_point import resume_point
from paceline.cli.checkpoint.strategy import merge_strategy, strategy
from paceline.cli.checkpoint.transform import convert, merge_lora, transform
from paceline.cli.checkpoint.verify import verify

checkpoint = typer.Typer(
    help="Reshard, convert, merge, inspect and verify checkpoints, without MindSpore.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
checkpoint.command()(transform)
checkpoint.command("merge-strategy")(merge_strategy)
checkpoint.command()(strategy)
checkpoint.command("merge-lora")(merge_lora)
checkpoint.command()(convert)
checkpoint.command()(inspect)
checkpoint.command()(verify)
checkpoint.command("resume-point")(resume_point)
