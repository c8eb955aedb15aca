"""`paceline watch`: a job while it trains, from what its light recorders append."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from paceline.errors import UsageError
from paceline.watch.follow import Follower
from paceline.watch.judge import View, judge
from paceline.watch.place import open_place
from paceline.watch.prometheus import Endpoint
from paceline.watch.show import alert, as_json, as_table, headline, notices

ALERTED = 3
"""Exit code when a rank is a chronic straggler."""


def watch(
    source: Annotated[Path, typer.Argument(help="The recorders' output_dir: a directory, s3://, obs:// or ssh://.")],
    once: Annotated[bool, typer.Option("--once", help="Look once; exit 3 when a rank is a chronic straggler.")] = False,
    until_alert: Annotated[
        bool, typer.Option("--until-alert", help="Watch until a rank becomes a chronic straggler; exit 3 then.")
    ] = False,
    as_lines: Annotated[bool, typer.Option("--json", help="One JSON object per look.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks.")] = 2.0,
    window: Annotated[int, typer.Option("--window", min=10, max=1000, help="Steps that are compared.")] = 50,
    top: Annotated[int, typer.Option("--top", min=1, help="Ranks to show, slowest first.")] = 16,
    job: Annotated[str | None, typer.Option("--job", help="Which job, where several record here.  [newest]")] = None,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", help="Serve metrics: PORT (127.0.0.1 only) or HOST:PORT.")
    ] = None,
) -> None:
    """Watch a job while it trains: step time, trend, the slowest rank, and an alert when a rank is slow for good.

    Reads what paceline.profiling.Recorder appends, and each time only what is new. Ends with the job.

    Example:  paceline watch runs/today --prometheus 9400
    """
    place = open_place(source)
    follower = Follower(place)
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
        place.close()
        if endpoint:
            endpoint.close()
    if (once or until_alert) and view is not None and view.alerts:
        raise typer.Exit(ALERTED)


def _look(follower: Follower, job: str | None, window: int, *, waits: bool, source: Path) -> View | None:
    """What there is now; None: nobody has finished a step yet, and somebody may."""
    follower.look()
    jobs = {key: ranks for key, ranks in follower.jobs.items() if job is None or key[0] == job}
    if not jobs:
        known = sorted({name for name, _ in follower.jobs})
        if known:
            raise UsageError(f"--job {job}: no such job records here", hint=f"there are: {', '.join(known)}")
        if not waits:
            raise UsageError(
                f"{source}: no light recorder writes here", hint="give the output_dir of paceline.profiling.Recorder"
            )
        return None
    view = judge(list(jobs.values())[-1], window=window)
    if view is None and not waits:
        raise UsageError(f"{source}: no rank has finished a step yet", hint="look again later, or leave out --once")
    return view


class _Alerts:
    """Each alert is said once when it begins, and once when it is over."""

    def __init__(self) -> None:
        self._slow: set[int] = set()

    def say(self, view: View) -> None:
        for rank in view.alerts:
            if rank.rank not in self._slow:
                _say(f"alert  step {view.step}: {alert(rank)}")
        now = {rank.rank for rank in view.alerts}
        for rank_number in sorted(self._slow - now):
            _say(f"over   step {view.step}: rank {rank_number} is no slower than its peers any more")
        self._slow = now


@contextmanager
def _screen(plain: bool, top: int) -> Iterator[_Show]:
    """A table that stays in its place on a terminal, a line per look elsewhere."""
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
    """How a view reaches the screen."""

    def __init__(self, console: Console, top: int) -> None:
        self.console, self.top = console, top
        self.live: Live | None = None
        self.table = False
        self._step = -1
        self._said: set[str] = set()

    def __call__(self, view: View) -> None:
        if self.live:
            self.live.update(as_table(view, top=self.top), refresh=True)
        elif self.table:
            self.console.print(as_table(view, top=self.top))
        else:
            self._line(view)

    def _line(self, view: View) -> None:
        if view.step != self._step:
            self._step = view.step
            print(headline(view), flush=True)
        told = {re.sub(r"\d+ s\b", "", notice): notice for notice in notices(view)}
        for key, notice in told.items():
            if key not in self._said:  # for how long it has been so is no news
                print(f"! {notice}", flush=True)
        self._said = set(told)


def _print_json(view: View) -> None:
    print(json.dumps(as_json(view)), flush=True)


def _say(text: str) -> None:
    print(f"paceline: {text}", file=sys.stderr, flush=True)
