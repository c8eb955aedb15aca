"""`paceline export`: a run as files that other tools open."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import typer
from typing_extensions import Annotated

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.cli.options.source_option import EngineOption, Source, StoreOption, WorkersOption, opened, print_warnings
from paceline.output.writer import ExportOptions, find_writer


def export(
    source: Source,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="chrome-trace, perfetto, parquet, csv, cluster-analysis, json, html, msadvisor, or an installed writer.",
        ),
    ],
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", help="File, or new directory (parquet, csv, cluster-analysis).")
    ] = None,
    ranks: Annotated[Optional[str], typer.Option("--ranks", help="Only these ranks, e.g. 0,5,8-15.")] = None,
    lang: Annotated[LanguageOption, typer.Option("--lang", help="Language of what is written.")] = LanguageOption.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Write all tables, one timeline for Perfetto, msprof-analyze's files for MindStudio Insight, or the diagnosis.

    Example:  paceline export runs/llama-16 --to chrome-trace --output llama.json.gz
    """
    writer = find_writer(to)
    options = ExportOptions(ranks=ranks, language=resolve_language(lang))
    with opened(source, store, workers, engine) as run:
        target = output or Path(writer.default_name(source.resolve().name or "run"))
        typer.echo(writer.write(run, target, options), err=True)
        print_warnings(run)
