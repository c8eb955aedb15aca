"""`paceline show`: what a profile holds, as an overview or one table."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.language import Language
from paceline.cli.overview import print_overview
from paceline.cli.rows import Rows, write_rows
from paceline.cli.source import EngineOption, Source, StoreOption, WorkersOption, opened, say_warnings
from paceline.run.run import TABLE_NAMES


class Format(StrEnum):
    pretty = "pretty"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def show(
    source: Source,
    table: Annotated[str | None, typer.Argument(help=f"One of: {', '.join(TABLE_NAMES)}.")] = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="How rows are written.")] = Format.pretty,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Rows that pretty shows; 0 = all.")] = 40,
    lang: Annotated[Language, typer.Option("--lang", help="Language of the overview.")] = Language.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Show what a profile holds: an overview, or one table.

    Example:  paceline show runs/llama-16 steps --format csv --output steps.csv
    """
    with opened(source, store, workers, engine) as run:
        if table is None and format is Format.pretty and output is None:
            print_overview(run, lang)
        else:
            name = table or "steps"
            write_rows(Rows(run.connection, run.table(name), name), format=format.value, output=output, limit=limit)
            say_warnings(run)
