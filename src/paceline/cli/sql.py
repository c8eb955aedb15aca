"""`paceline sql`: any question the tables can answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import duckdb
import typer

from paceline.cli.rows import Rows, write_rows
from paceline.cli.show import Format
from paceline.cli.source import EngineOption, Source, StoreOption, WorkersOption, opened, say_warnings
from paceline.run.read_only import failing


def sql(
    source: Source,
    query: Annotated[str, typer.Argument(help="A SELECT in DuckDB's SQL over the tables of `paceline show`.")],
    format: Annotated[Format, typer.Option("--format", "-f", help="How rows are written.")] = Format.pretty,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Rows that pretty shows; 0 = all.")] = 40,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Ask the tables anything; times are ns, sizes bytes. Nothing but the tables is read, and nothing is written.

    Example:  paceline sql runs/llama-16 "select rank, median(duration)/1e6 as ms from steps group by rank order by ms"
    """
    with opened(source, store, workers, engine) as run:
        rows = run.ask(query, writing_below=output.parent if output else None)
        try:
            write_rows(Rows(run.connection, rows), format=format.value, output=output, limit=limit)
        except duckdb.Error as error:  # found only among the rows: a text that is no number, too much for the memory
            raise failing(error) from error
        say_warnings(run)
