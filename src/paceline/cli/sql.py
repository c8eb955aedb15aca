"""`paceline sql`: run a SQL query over the tables of a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import duckdb
import typer
from typing_extensions import Annotated

from paceline.cli.console.table_output import Rows, write_rows
from paceline.cli.options.source_option import EngineOption, Source, StoreOption, WorkersOption, opened, print_warnings
from paceline.cli.show import RowFormat
from paceline.run.sql_sandbox import query_error


def sql(
    source: Source,
    query: Annotated[str, typer.Argument(help="A SELECT in DuckDB's SQL over the tables of `paceline show`.")],
    format: Annotated[RowFormat, typer.Option("--format", "-f", help="Output format.")] = RowFormat.pretty,
    output: Annotated[Optional[Path], typer.Option("--output", "-o", help="Write to this file.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Rows to show with --format pretty; 0 = all.")
    ] = 40,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Run a SQL query over the tables; times are in ns, sizes in bytes. It can only read these tables.

    Example:  paceline sql runs/llama-16 "select rank, median(duration)/1e6 as ms from steps group by rank order by ms"
    """
    with opened(source, store, workers, engine) as run:
        rows = run.sandboxed_sql(query, writing_below=output.parent if output else None)
        try:
            write_rows(Rows(run.connection, rows), format=format.value, output=output, limit=limit)
        except duckdb.Error as error:  # only found while rows are read: a text that is not a number, too little memory
            raise query_error(error) from error
        print_warnings(run)
