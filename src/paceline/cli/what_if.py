"""`paceline what-if`: predicted step time with some ranks, hosts, links or stages fixed."""

from __future__ import annotations

from typing import List, Optional

import typer
from typing_extensions import Annotated

from paceline.cli.options.source_option import EngineOption, Source, StoreOption, WorkersOption, opened
from paceline.diagnosis.what_if import what_if as replay_fixes
from paceline.output.json_text import indented_json


def what_if(
    source: Source,
    fix: Annotated[
        Optional[List[str]],
        typer.Option("--fix", help="rank:5, host:NAME, link:3-4, stages, overlap or input; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Replay the run with faults fixed and print the new step time; fixes are applied together, in the order given.

    Example:  paceline what-if runs/llama-16 --fix rank:5 --fix link:3-5
    """
    with opened(source, store, workers, engine) as run:
        result = replay_fixes(run, fix or ())
    if as_json:
        typer.echo(indented_json(result), nl=False)
        return
    typer.echo(f"measured               {result.step_ms:10.2f} ms per step")
    typer.echo(f"replayed, unchanged    {result.replayed_ms:10.2f} ms   ({result.residual_percent:+.2f} %)")
    for fixed in result.fixes:
        speedup = f"{result.step_ms / fixed.step_ms:.2f}× faster, " if fixed.step_ms else ""
        typer.echo(f"with {fixed.fix:17} {fixed.step_ms:10.2f} ms   ({speedup}{fixed.percent:.1f} % less time)")
