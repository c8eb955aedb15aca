"""`paceline run-profiled`: profile a training script without changing it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, List, Optional

import typer
from typing_extensions import Annotated

from paceline.core.errors import UsageError
from paceline.core.rank_list import ranks_of
from paceline.profiling.environment_options import VARIABLE, read_options, to_json
from paceline.profiling.launch import run
from paceline.profiling.options import ProfilerLevel


def run_profiled(
    command: Annotated[List[str], typer.Argument(metavar="COMMAND…", help="Command to run, e.g. python train.py.")],
    output: Annotated[
        Optional[str], typer.Option("--output", "-o", help="Directory for recordings.  [default: ./data]")
    ] = None,
    start_step: Annotated[Optional[int], typer.Option(min=1, help="First step to record, from 1.")] = None,
    stop_step: Annotated[Optional[int], typer.Option(min=1, help="Last step to record.")] = None,
    ranks: Annotated[Optional[str], typer.Option(help="Only these ranks, e.g. 0,8-15.")] = None,
    level: Annotated[
        Optional[ProfilerLevel], typer.Option(help="How much detail to record per kernel.  [default: Level0]")
    ] = None,
) -> None:
    """Run COMMAND and profile its torch or MindSpore training, without changing the script.

    MS_PROFILER_OPTIONS may hold more parameters of the Profiler (JSON; "start" must be true); options given here
    override it. Steps are those of the optimizer or of Model.train; without steps the whole run is recorded.

    Example:  paceline run-profiled --start-step 2 --stop-step 5 python train.py --epochs 1
    """
    if start_step and stop_step and stop_step < start_step:
        raise UsageError(f"--stop-step {stop_step} is before --start-step {start_step}")
    asked = _from_environment()
    asked.update(
        (name, value)
        for name, value in (
            ("output_path", output),
            ("start_step", start_step),
            ("stop_step", stop_step),
            ("ranks", ranks_of(ranks) if ranks else None),
            ("profiler_level", level and level.value),
        )
        if value is not None
    )
    read = read_options(json.dumps(asked))
    if read.problem:
        raise UsageError(f"{VARIABLE} {read.problem}", hint="""e.g. {"start": true, "output_path": "./data"}""")
    for note in read.notes:
        print(f"paceline: {note}", file=sys.stderr)
    raise typer.Exit(run(command, to_json(read)))


def _from_environment() -> dict[str, Any]:
    text = os.environ.get(VARIABLE)
    if not text:
        return {"start": True}
    try:
        given = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{VARIABLE} is not valid JSON ({error})", hint="""e.g. {"start": true}""") from error
    return given if isinstance(given, dict) else {}
