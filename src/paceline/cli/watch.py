"""`paceline watch`: follow a job while it trains, from the files of its light recorders."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Optional

import msgspec
import typer
from rich.live import Live
from typing_extensions import Annotated

from paceline.core.errors import UsageError
from paceline.output.console import Console
from paceline.watch.prometheus import Endpoint
from paceline.watch.render import alert, as_table, headline, notices, watch_document
from paceline.watch.source import open_log_source
from paceline.watch.straggler import JobView, view_job
from paceline.watch.tail import LogFollower

ALERTED = 3
"""Exit code when a rank is a persistent straggler."""


def watch(
    source: Annotated[Path, typer.Argument(help="The recorders' output_dir: a directory, s3://, obs:// or ssh://.")],
    once: Annotated[bool, typer.Option("--once", help="Look once; exit 3 if a rank is persistently slow.")] = False,
    until_alert: Annotated[
        bool, typer.Option("--until-alert", help="Watch until a rank is persistently slow; exit 3 then.")
    ] = False,
    as_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object per poll.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two polls.")] = 2.0,
    window: Annotated[int, typer.Option("--window", min=10, max=1000, help="Steps to compare.")] = 50,
    top: Annotated[int, typer.Option("--top", min=1, help="Ranks to show, slowest first.")] = 16,
    job: Annotated[
        Optional[str], typer.Option("--job", help="Which job, if several record here.  [default: the newest]")
    ] = None,
    prometheus: Annotated[
        Optional[str], typer.Option("--prometheus", help="Serve metrics: PORT (127.0.0.1 only) or HOST:PORT.")
    ] = None,
) -> None:
    """Watch a job while it trains: step time, trend, the slowest rank, and an alert when a rank is persistently slow.

    Reads what paceline.profiling.Recorder appends, each time only what is new. Ends with the job.

    Example:  paceline watch runs/today --prometheus 9400
    """
    logs = open_log_source(source)
    follower = LogFollower(logs)
    endpoint = Endpoint(prometheus) if prometheus else None
    if endpoint:
        _say(f"metrics at {endpoint.url}")
    alerts, waiting = _Alerts(), False
    try:
        with _screen(as_lines or once, top) as show:
            while True:
                view = _look(follower, job, window, waits=not once, source=source)
                if view is not None:
                    if endpoint:
                        endpoint.put(view)
                    _print_json(view) if as_lines else show(view)
                    alerts.say(view)
                elif not waiting:
                    waiting = True
                    _say(f"no step yet in {source}; waiting for the recorders")
                if once or (view is not None and (view.finished or (until_alert and view.alerts))):
                    break
                time.sleep(every)
    finally:
        logs.close()
        if endpoint:
            endpoint.close()
    if (once or until_alert) and view is not None and view.alerts:
        raise typer.Exit(ALERTED)


def _look(follower: LogFollower, job: str | None, window: int, *, waits: bool, source: Path) -> JobView | None:
    """The current view; None while no rank has finished a step and `waits` is set."""
    follower.poll()
    jobs = {key: ranks for key, ranks in follower.jobs.items() if job is None or key[0] == job}
    if not jobs:
        known = sorted({name for name, _ in follower.jobs})
        if known:
            raise UsageError(f"--job {job}: job not found", hint=f"known: {', '.join(known)}")
        if not waits:
            raise UsageError(
                f"{source}: no files of a light recorder", hint="give the output_dir of paceline.profiling.Recorder"
            )
        return None
    view = view_job(list(jobs.values())[-1], window=window)
    if view is None and not waits:
        raise UsageError(f"{source}: no rank has finished a step yet", hint="try again later, or leave out --once")
    return view


class _Alerts:
    """Each alert is printed once when it begins, and once when it is over."""

    def __init__(self) -> None:
        self._slow: set[int] = set()

    def say(self, view: JobView) -> None:
        for rank in view.alerts:
            if rank.rank not in self._slow:
                _say(f"alert  step {view.step}: {alert(rank)}")
        now = {rank.rank for rank in view.alerts}
        for rank_number in sorted(self._slow - now):
            _say(f"over   step {view.step}: rank {rank_number} is no longer slower than its peers")
        self._slow = now


@contextmanager
def _screen(plain: bool, top: int) -> Iterator[_Show]:
    """A live table on a terminal, a line per poll elsewhere."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    show = _Show(console, top)
    if plain or not console.is_terminal:
        show.table = plain
        yield show
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        show.live = live
        yield show


class _Show:
    """Prints views: as a live table, a table or a line."""

    def __init__(self, console: Console, top: int) -> None:
        self.console, self.top = console, top
        self.live: Live | None = None
        self.table = False
        self._step = -1
        self._said: set[str] = set()

    def __call__(self, view: JobView) -> None:
        if self.live:
            self.live.update(as_table(view, top=self.top), refresh=True)
        elif self.table:
            self.console.print(as_table(view, top=self.top))
        else:
            self._line(view)

    def _line(self, view: JobView) -> None:
        if view.step != self._step:
            self._step = view.step
            print(headline(view), flush=True)
        current = {re.sub(r"\d+ s\b", "", notice): notice for notice in notices(view)}
        for key, notice in current.items():
            if key not in self._said:  # a changed duration alone is not printed again
                print(f"! {notice}", flush=True)
        self._said = set(current)


def _print_json(view: JobView) -> None:
    print(msgspec.json.encode(watch_document(view)).decode(), flush=True)


def _say(text: str) -> None:
    print(f"paceline: {text}", file=sys.stderr, flush=True)
