"""`paceline what-if`: the step time if some ranks, hosts, links or stages were as they should be."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.advice.case import Case
from paceline.advice.what_if import apply_fix
from paceline.cli.source import EngineOption, Source, StoreOption, WorkersOption, opened


def what_if(
    source: Source,
    fix: Annotated[
        list[str] | None,
        typer.Option("--fix", help="rank:5, host:NAME, link:3-4, stages, overlap or input; may be repeated."),
    ] = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Replay the run with faults mended and print the new step time.

    Example:  paceline what-if runs/llama-16 --fix rank:5 --fix link:3-4
    """
    with opened(source, store, workers, engine) as run:
        case = Case(run)
        costs = case.replay.costs
        typer.echo(f"measured               {case.step_ms:10.2f} ms a step")
        typer.echo(
            f"replayed, unchanged    {case.gain(costs).step_ms_fixed:10.2f} ms   ({100 * case.replay.residual:+.2f} %)"
        )
        for text in fix or []:
            costs = apply_fix(case, costs, text)
            gain = case.gain(costs)
            typer.echo(f"with {text:17} {gain.step_ms_fixed:10.2f} ms   ({gain.percent:.1f} % faster)")
