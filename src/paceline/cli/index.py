"""`paceline index`: read a source into its store in advance, also on a Dask or Ray cluster."""

from __future__ import annotations

import time
from typing import List, Optional

import typer
from typing_extensions import Annotated

from paceline.cli.options.source_option import EngineOption, Source, StoreOption, WorkersOption, opened, print_warnings
from paceline.run.run import TABLE_NAMES


def index(
    source: Source,
    table: Annotated[
        Optional[List[str]], typer.Option("--table", "-t", help="Only this table; may be repeated.  [default: all]")
    ] = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Read a source into its store, also on a Dask or Ray cluster; diagnose, show and serve then start from the store.

    Example:  paceline index obs://bucket/run1 --engine dask://10.0.0.9:8786 --store obs://bucket/run1-index
    """
    began = time.monotonic()
    with opened(source, store, workers, engine) as run:
        run.load(table or TABLE_NAMES)
        rows = {name: run.rows(name) for name in table or TABLE_NAMES}
        print_warnings(run)
        ranks, size = run.rows("ranks"), run.size
    seconds = time.monotonic() - began
    for name, count in rows.items():
        if count:
            typer.echo(f"{name:15} {count:>14,}")
    typer.echo(f"{ranks:,} ranks, {size / 1e6:,.0f} MB in {seconds:,.1f} s: {ranks / seconds:,.1f} ranks/s")
