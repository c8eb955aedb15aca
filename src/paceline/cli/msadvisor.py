"""`paceline msadvisor`: the old door, with that tool's arguments, places and result JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from paceline.advice.engine import diagnose
from paceline.advice.hardware import usual_hardware
from paceline.advice.present import as_json
from paceline.cli.language import Language, is_chinese
from paceline.cli.source import EngineOption, StoreOption, WorkersOption, opened, say_warnings
from paceline.errors import UsageError
from paceline.report.data import report_data
from paceline.report.html import write_html
from paceline.report.msadvisor import Result, examine
from paceline.run.run import Run
from paceline.storage.localize import localize
from paceline.storage.location import is_remote
from paceline.whole import write_whole


def msadvisor(
    rank_size: Annotated[int, typer.Option("--rank_size", min=1, help="Ranks the job had.")],
    data: Annotated[Path | None, typer.Option("--data", help="Directory with the profiles of all ranks.")] = None,
    bucket_name: Annotated[
        str | None, typer.Option("--bucket_name", help="Where they lie instead: obs://bucket/profiler.")
    ] = None,
    step: Annotated[int, typer.Option("--step", min=0, help="Only this step; 0 = all.")] = 0,
    lang: Annotated[Language, typer.Option("--lang", help="Language of the result.")] = Language.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Analyse communication as msadvisor's HCCL knowledge base did: same arguments, same places for results.

    Example:  paceline msadvisor --rank_size=24 --data=/home/profiler
    """
    source, target = _places(data, bucket_name)
    language = "zh" if is_chinese(lang) else "en"
    with opened(source, store, workers, engine) as run:
        steps = _chosen(run, step)
        _check_ranks(run, rank_size)
        diagnosis = diagnose(run, steps=steps)
        result = examine(run, diagnosis, steps=steps, language=language)
        _print(result)
        written = target / "hccl_analysis_result.json"
        write_whole(written, json.dumps(result.as_json(), ensure_ascii=False, indent=1) + "\n")
        typer.echo(f"Write result json file {written}")
        say_warnings(run)
        # Last, because the page may not be built: the result is safe by then.
        page = target / "visualization" / "hccl_analysis_result.html"
        diagnoses = {tongue: as_json(diagnosis, tongue) for tongue in ("en", "zh")}
        write_html(report_data(run, diagnoses, nominal=usual_hardware().nominal_speeds), page, language=language)
        typer.echo(f"visualization and hccl_analysis_result.html saved in {page.parent}")


def _places(data: Path | None, bucket: str | None) -> tuple[Path, Path]:
    """Where to read, where to write; --data wins when both are given, as it always did."""
    if data is not None and is_remote(data):
        return data, Path("recommendation")
    if data is not None:
        data = localize(data)
        if not data.is_dir():
            raise UsageError(f"--data {data}: no such directory")
        return data, data / "recommendation"
    if bucket is None:
        raise UsageError("neither --data nor --bucket_name is given", hint="example: --data=/home/profiler")
    return Path(bucket), Path("recommendation")


def _chosen(run: Run, step: int) -> tuple[int, ...] | None:
    if not step:
        return None
    known = [
        row[0] for row in run.sql("SELECT DISTINCT step FROM steps WHERE step IS NOT NULL ORDER BY step").fetchall()
    ]
    if step not in known:
        raise UsageError(f"--step {step}: not recorded", hint=f"there are: {', '.join(map(str, known)) or 'none'}")
    return (step,)


def _check_ranks(run: Run, rank_size: int) -> None:
    """Missing ranks are said; the others are analysed all the same."""
    found = {row[0] for row in run.sql("SELECT rank FROM ranks WHERE format IS NOT NULL").fetchall()}
    if len(found) == rank_size:
        return
    missing = sorted(set(range(rank_size)) - found)
    named = f"; missing: {', '.join(map(str, missing[:20]))}{' …' if len(missing) > 20 else ''}" if missing else ""
    typer.echo(f"warning --rank_size is {rank_size}, but {len(found)} ranks were found{named}", err=True)


def _print(result: Result) -> None:
    typer.echo(f"[Advisor Result]\n{result.summary}")
    for advice in result.operators:
        typer.echo("\n".join([advice.title, *(f"    {line}" for line in advice.lines)]))
    table, _, rows = result.findings
    if rows:
        typer.echo(f"{table}:")
        for what, severity, gain, do in rows:
            typer.echo(f"    {what} ({severity}, {gain} %)\n        {do}")
