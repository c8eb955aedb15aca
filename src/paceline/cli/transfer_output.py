"""Progress bar and result of copy, sync, slim and collect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from paceline.core.errors import PacelineError
from paceline.storage.secret import redact
from paceline.storage.transfer.transfer_report import OnProgress, TransferReport
from paceline.storage.transfer.transfer_report import TransferProgress as Moment

_MOST_SHOWN = 20


@contextmanager
def progress_bar(what: str) -> Iterator[OnProgress]:
    """Bytes, rate and time left on stderr; nothing where stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.fields[files]} files"),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None, visible=False, files="")

        def show(now: Moment) -> None:
            files = f"{now.files:,}/{now.files_total:,}"
            bar.update(task, completed=now.bytes, total=now.bytes_total or 1, visible=True, files=files)

        yield show


def print_report(report: TransferReport, *, as_json: bool = False, quiet: bool = False) -> None:
    """The result on stdout (unless `quiet`), failures on stderr; exit code 1 when anything failed."""
    if quiet:
        pass
    elif as_json:
        typer.echo(json.dumps(as_dict(report), ensure_ascii=False))
    else:
        typer.echo(summary(report))
    for key in report.unfinished[:_MOST_SHOWN]:
        typer.echo(f"skipped: {key} is still being written", err=True)
    for failure in report.failures[:_MOST_SHOWN]:
        typer.echo(f"failed:  {redact(str(failure))}", err=True)
    if len(report.failures) > _MOST_SHOWN:
        typer.echo(f"failed:  … and {len(report.failures) - _MOST_SHOWN:,} more (--json lists all)", err=True)
    if report.failures:
        raise PacelineError(
            f"{len(report.failures):,} files not transferred",
            hint="run the same command again: it transfers only what is missing",
        )


def summary(report: TransferReport) -> str:
    rate = report.moved_bytes / report.seconds / 1e6 if report.seconds else 0.0
    size = f"{report.moved_bytes / 1e6:,.1f} MB in {report.seconds:,.1f} s ({rate:,.0f} MB/s)"
    parts = [f"{report.moved:,} files transferred, {size}", f"{report.same:,} already existed"]
    if report.pruned:
        parts.append(f"{report.pruned:,} pruned")
    if report.retries:
        parts.append(f"{report.retries:,} retries")
    if report.unfinished:
        parts.append(f"{len(report.unfinished):,} unfinished skipped")
    if report.failures:
        parts.append(f"{len(report.failures):,} failed")
    return f"{report.target}: {'; '.join(parts)}"


def as_dict(report: TransferReport) -> dict[str, object]:
    return {
        "source": report.source,
        "target": report.target,
        "moved": report.moved,
        "moved_bytes": report.moved_bytes,
        "same": report.same,
        "same_bytes": report.same_bytes,
        "pruned": report.pruned,
        "retries": report.retries,
        "seconds": round(report.seconds, 3),
        "unfinished": report.unfinished,
        "failures": [{"key": failure.key, "reason": redact(failure.reason)} for failure in report.failures],
    }
