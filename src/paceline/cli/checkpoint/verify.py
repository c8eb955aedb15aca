"""`paceline checkpoint verify`: structure, checksums, missing parts and unequal replicas."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from paceline.cli.checkpoint.options import JsonOption, NoReplicasOption, SourceArgument, StepOption, StrategyOption
from paceline.core.errors import PacelineError


def verify(
    source: SourceArgument,
    strategy: StrategyOption = None,
    step: StepOption = None,
    once: NoReplicasOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check structure and checksums of every file, that no part is missing, and that replicas are equal.

    Example:  paceline checkpoint verify output/checkpoint --strategy output/strategy
    """
    from paceline.checkpoint.select_step import parse_step
    from paceline.checkpoint.strategy.strategy import read_strategy
    from paceline.checkpoint.tensor_files import open_listing
    from paceline.checkpoint.verify import verify as check

    with open_listing(source) as place:
        verdict = check(place, read_strategy(strategy), step=parse_step(step) if step else None, deduplicated=once)
    if as_json:
        typer.echo(json.dumps(asdict(verdict), ensure_ascii=False))
    else:
        typer.echo(
            f"{verdict.files:,} files, {verdict.tensors:,} tensors, {verdict.bytes / 1e6:,.1f} MB;"
            f" {verdict.checksums:,} checksums and {verdict.replicas:,} replicas compared"
        )
    for note in verdict.notes:
        typer.echo(f"note:    {note}", err=True)
    for problem in verdict.problems:
        typer.echo(f"problem: {problem}", err=True)
    if verdict.problems:
        raise PacelineError(f"{source}: {len(verdict.problems):,} problems")
