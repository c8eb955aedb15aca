"""`paceline what-if`: the step time if some ranks, hosts, links or stages were as they should be."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from paceline.advice.case import Case
from paceline.advice.what_if import apply_fix
from paceline.cli.source import EngineOption, Source, StoreOption, WorkersOption, opened

SCHEMA = "paceline.what-if/1"


def what_if(
    source: Source,
    fix: Annotated[
        list[str] | None,
        typer.Option("--fix", help="rank:5, host:NAME, link:3-4, stages, overlap or input; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Result as JSON.")] = False,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Replay the run with faults mended and print the new step time; several fixes add up, in the order given.

    Example:  paceline what-if runs/llama-16 --fix rank:5 --fix link:3-5
    """
    with opened(source, store, workers, engine) as run:
        case = Case(run)
        costs, gains = case.replay.costs, []
        unchanged = case.gain(costs)
        for text in fix or []:
            costs = apply_fix(case, costs, text)
            gains.append((text, case.gain(costs)))
        residual = round(100 * case.replay.residual, 2) + 0.0  # no minus before nothing
        if as_json:
            fixes = [{"fix": text, "step_ms": gain.step_ms_fixed, "percent": gain.percent} for text, gain in gains]
            typer.echo(json.dumps({"schema": SCHEMA, "step_ms": case.step_ms, "replayed_ms": unchanged.step_ms_fixed,
                                   "residual_percent": residual, "fixes": fixes}, indent=2))  # fmt: skip
            return
        typer.echo(f"measured               {case.step_ms:10.2f} ms a step")
        typer.echo(f"replayed, unchanged    {unchanged.step_ms_fixed:10.2f} ms   ({residual:+.2f} %)")
        for text, gain in gains:
            typer.echo(f"with {text:17} {gain.step_ms_fixed:10.2f} ms   ({gain.percent:.1f} % faster)")
