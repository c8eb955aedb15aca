"""`paceline profile`: record steps of a running job, and show which step each rank is at."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, List, Optional

import typer
from typing_extensions import Annotated

from paceline.core.errors import PacelineError, UsageError
from paceline.core.rank_list import ranks_of
from paceline.profiling.dynamic_config import RecordRequest
from paceline.profiling.option_parsing import parse_options
from paceline.profiling.options import ProfilerLevel
from paceline.profiling.running_job import RunningJob, StepProgress, find_job, follow_request, request_recording
from paceline.profiling.warning import collect_warnings

profile = typer.Typer(help="Record steps of a running job without stopping it.", no_args_is_help=True)

_JobOption = Annotated[
    Path, typer.Option("--job", help="The cfg_path of the job's DynamicProfilerMonitor, or a directory above it.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_ATTEMPTS = 3


@profile.command()
def now(
    job: _JobOption,
    steps: Annotated[int, typer.Option(min=1, help="Number of steps.")] = 5,
    ranks: Annotated[Optional[str], typer.Option(help="Only these ranks, e.g. 0,8-15 (default: all).")] = None,
    level: Annotated[
        Optional[ProfilerLevel], typer.Option(help="How much detail to record per kernel.  [default: the job's]")
    ] = None,
    set_: Annotated[
        Optional[List[str]],
        typer.Option("--set", help="Another profiler field, e.g. --set with_stack=true; may be repeated."),
    ] = None,
    analyse: Annotated[bool, typer.Option(help="Whether the job analyses the recording itself.")] = True,
    wait: Annotated[bool, typer.Option(help="Whether to wait until the steps are recorded.")] = True,
    as_json: _Json = False,
) -> None:
    """Record the next steps of a running job, on all ranks from the same step.

    Example:  paceline profile now --job runs/llama/dynamic --steps 5 --ranks 0,8
    """
    found = find_job(job)
    fields = {"analyse": analyse, "analyse_mode": 0 if analyse else -1, **_fields(level and level.value, set_ or [])}
    chosen = ranks_of(ranks) if ranks else []
    for attempt in range(_ATTEMPTS):
        request = request_recording(found, steps, ranks=chosen, fields=fields, margin=2.0**attempt)
        _note(f"steps {request.start} to {request.stop} will be recorded")
        if not wait:
            _print(as_json, {"start_step": request.start, "stop_step": request.stop}, [])
            return
        progress = _followed(found, request)
        if progress.recorded:
            _report(progress, as_json)
            return
        _note(f"missed ({progress.missed[0].note or 'the job was already past them'})")
    raise PacelineError(
        f"{found.config.parent}: the ranks missed {_ATTEMPTS} requests",
        hint="check that every host can see this directory",
    )


@profile.command()
def status(job: _JobOption, as_json: _Json = False) -> None:
    """Show which step each rank of a job is at, and what it records.

    Example:  paceline profile status --job runs/llama/dynamic
    """
    states = find_job(job).states()
    lines = [
        f"rank {state.rank:<4} {state.host}  step {state.step:<7} {state.step_seconds * 1e3:9.1f} ms per step   "
        f"{state.state}{f' {state.start} to {state.stop}' if state.start > 0 else ''}"
        for state in states
    ]
    _print(as_json, {"ranks": [asdict(state) for state in states]}, lines)


def _followed(job: RunningJob, request: RecordRequest) -> StepProgress:
    last = None
    for progress in follow_request(job, request):
        last = progress
    assert last is not None
    return last


def _report(progress: StepProgress, as_json: bool) -> None:
    request = progress.request
    recordings = [{"rank": state.rank, "host": state.host, "path": state.output} for state in progress.recorded]
    lines = [f"rank {each['rank']:<4} {each['path']}" for each in recordings]
    _print(as_json, {"start_step": request.start, "stop_step": request.stop, "recordings": recordings}, lines)
    for state in progress.missed:
        _note(f"rank {state.rank} recorded nothing: {state.note or 'it was already past these steps'}")
    if progress.missed:
        raise typer.Exit(1)


def _fields(level: str | None, pairs: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"profiler_level": level} if level else {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set {pair}: expected NAME=VALUE", hint="e.g. --set with_stack=true")
        try:
            fields[name] = json.loads(value)
        except ValueError:
            fields[name] = value
    with collect_warnings() as problems:
        _, unknown = parse_options(fields)
    if problems or unknown:
        raise UsageError(
            problems[0] if problems else f"unknown field {next(iter(unknown))!r}", hint="see docs/profiling.md"
        )
    return fields


def _print(as_json: bool, content: dict[str, Any], lines: list[str]) -> None:
    for line in [json.dumps(content)] if as_json else lines:
        print(line)


def _note(text: str) -> None:
    print(f"paceline: {text}", file=sys.stderr)
