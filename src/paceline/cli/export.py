"""`paceline export`: the tables as files other tools open."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.source import EngineOption, Source, StoreOption, WorkersOption, opened, say_warnings
from paceline.errors import UsageError
from paceline.run.cluster_export import export_cluster_analysis, unplaced_links
from paceline.run.export import export_chrome_trace, export_tables


class Target(StrEnum):
    chrome_trace = "chrome-trace"
    parquet = "parquet"
    csv = "csv"
    cluster_analysis = "cluster-analysis"


def export(
    source: Source,
    to: Annotated[Target, typer.Option("--to", help="What to write.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File (chrome-trace) or new directory (all others).")
    ] = None,
    ranks: Annotated[str | None, typer.Option("--ranks", help="Only these ranks, e.g. 0,5,8-15.")] = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Write all tables as Parquet or CSV, one timeline for Perfetto, or msprof-analyze's files for MindStudio Insight.

    Example:  paceline export runs/llama-16 --to chrome-trace --output llama.json.gz
    """
    with opened(source, store, workers, engine) as run:
        name = source.resolve().name or "run"
        if to is Target.chrome_trace:
            target = output or Path(f"{name}.trace.json.gz")
            count = export_chrome_trace(run, target, ranks=ranks)
            typer.echo(f"{target}: {count:,} events; open it at ui.perfetto.dev or chrome://tracing", err=True)
        elif to is Target.cluster_analysis:
            if ranks:
                raise UsageError("--ranks does not go with --to cluster-analysis: its groups and totals need all ranks")
            target = output or Path("cluster_analysis_output")  # the name MindStudio Insight looks for
            written = export_cluster_analysis(run, target)
            typer.echo(f"{target}: {', '.join(f'{file} {rows:,}' for file, rows in written.items())}", err=True)
            if left_out := unplaced_links(run):
                typer.echo(f"left out: {left_out:,} links whose ranks are known inside their group only", err=True)
        else:
            target = output or Path(f"{name}-{to.value}")
            written = export_tables(run, target, to.value, ranks=ranks)
            typer.echo(f"{target}: {', '.join(f'{table} {rows:,}' for table, rows in written.items())}", err=True)
        say_warnings(run)
