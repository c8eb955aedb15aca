"""`paceline show`: an overview of a profile, or one of its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import typer
from typing_extensions import Annotated

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.cli.console.table_output import Rows, write_rows
from paceline.cli.options.source_option import EngineOption, Source, StoreOption, WorkersOption, opened, print_warnings
from paceline.cli.overview import print_overview
from paceline.core.str_enum import StrEnum
from paceline.run.run import TABLE_NAMES


class RowFormat(StrEnum):
    pretty = "pretty"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def show(
    source: Source,
    table: Annotated[Optional[str], typer.Argument(help=f"One of: {', '.join(TABLE_NAMES)}.")] = None,
    format: Annotated[RowFormat, typer.Option("--format", "-f", help="Output format.")] = RowFormat.pretty,
    output: Annotated[Optional[Path], typer.Option("--output", "-o", help="Write to this file.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Rows to show with --format pretty; 0 = all.")
    ] = 40,
    lang: Annotated[LanguageOption, typer.Option("--lang", help="Language of the overview.")] = LanguageOption.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Show the content of a profile: an overview, or one table.

    Example:  paceline show runs/llama-16 steps --format csv --output steps.csv
    """
    with opened(source, store, workers, engine) as run:
        if table is None and format is RowFormat.pretty and output is None:
            print_overview(run, resolve_language(lang))
        else:
            name = table or "steps"
            write_rows(Rows(run.connection, run.table(name), name), format=format.value, output=output, limit=limit)
            print_warnings(run)
