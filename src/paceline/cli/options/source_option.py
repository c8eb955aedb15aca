"""Options of all commands that take a SOURCE, and opening it with a progress bar."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import typer
from typing_extensions import Annotated

import paceline

if TYPE_CHECKING:
    from paceline.run.ingest import OnReadProgress, ReadProgress
    from paceline.run.run import Run

Source = Annotated[
    Path, typer.Argument(help="Directory or file of profiles, or s3://…, obs://…, ssh://…; any format, any depth.")
]
StoreOption = Annotated[
    Optional[str],
    typer.Option(
        "--store", help="Directory of the Parquet store: a path, s3://, obs://.  [default: ~/.cache/paceline]"
    ),
]
WorkersOption = Annotated[
    Optional[int], typer.Option("--workers", min=1, help="Processes to read large sources with.  [default: cores]")
]
EngineOption = Annotated[
    Optional[str],
    typer.Option(
        "--engine", help="Cluster that reads: dask://host:8786 or ray://host:10001.  [default: local processes]"
    ),
]


@contextmanager
def opened(source: Path, store: str | Path | None, workers: int | None, engine: str | None = None) -> Iterator[Run]:
    """An open Run; reading shows its progress on stderr."""
    cores = workers or os.cpu_count() or 1
    with progress_shown() as advance:  # noqa: SIM117  parenthesised contexts are of Python 3.9
        with paceline.open(source, store=store, workers=cores, engine=engine, progress=advance) as run:
            yield run


@contextmanager
def progress_shown() -> Iterator[OnReadProgress | None]:
    """Bars on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    # Imported here: takes 50 ms, and is only needed on a terminal.
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    from paceline.output.console import Console

    columns = ("reading", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TextColumn("{task.description}"))
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None, visible=False)

        def show(now: ReadProgress) -> None:
            ranks = f"{now.ranks:,} of {now.ranks_total:,} ranks" if now.ranks_total else ""
            bars.update(task, completed=now.done, total=now.total, description=ranks, visible=True)

        yield show


def print_warnings(run: Run, *, most: int = 12) -> None:
    """Warnings on stderr, one line each."""
    from paceline.output.console import Console

    console = Console(stderr=True, highlight=False, emoji=False)
    warnings = run.warnings
    for warning in warnings[:most]:
        console.print(f"[yellow]warning[/] {_plain(str(warning))}", soft_wrap=True)
    if len(warnings) > most:
        console.print(f"[yellow]warning[/] … and {len(warnings) - most} more: paceline show {run.source} ranks")


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
