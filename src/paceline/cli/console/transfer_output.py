"""Progress bar and result of copy, sync, slim and collect."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from paceline.core.errors import PacelineError
from paceline.core.waiting import AGAIN, FIRST, waiting_for
from paceline.output.console import Console
from paceline.storage.secret import redact
from paceline.storage.transfer.transfer_report import OnProgress, TransferReport
from paceline.storage.transfer.transfer_report import TransferProgress as Moment

_MOST_SHOWN = 20


@contextmanager
def progress_bar(what: str, *places: str, before: str = "") -> Iterator[OnProgress]:
    """Bytes, rate and time left on stderr; without a terminal a line now and then. `places` have to answer first.

    `before`: what is waited for until the first file, if it is more than these places.
    """
    for place in places:
        _require_reachable(place)
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

        lines = None if console.is_terminal else _ProgressLines(what)
        wait = ExitStack()

        def show(now: Moment) -> None:
            wait.close()
            if lines is not None:
                lines.show(now)
                return
            files = f"{now.files:,}/{now.files_total:,}"
            bar.update(task, completed=now.bytes, total=now.bytes_total or 1, visible=True, files=files)

        with wait:
            wait.enter_context(waiting_for(before or f"the first file, {' '.join([what, *places[:1]])}"))
            yield show


class _ProgressLines:
    """A line after two seconds and then every half minute."""

    def __init__(self, what: str) -> None:
        self._what, self._due = what, time.monotonic() + FIRST
        self._lock = threading.Lock()

    def show(self, now: Moment) -> None:
        with self._lock:
            if time.monotonic() < self._due:
                return
            self._due = time.monotonic() + AGAIN
        size = f"{now.bytes / 1e6:,.1f} of {now.bytes_total / 1e6:,.1f} MB"
        typer.echo(f"{self._what}: {now.files:,} of {now.files_total:,} files, {size}", err=True)


def _require_reachable(place: str) -> None:
    from paceline.storage.reachability import (
        require_reachable,
    )  # the credentials' module, which ls of a directory needs not

    require_reachable(place)


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
