"""Starts one process per card and ends them together: the first failure stops all, and is shown.

launch(LaunchPlan(("python", "train.py"), ranks=8))          this host
launch(LaunchPlan(command, ranks=8, hosts=("a", "b")))       over ssh
launch(LaunchPlan(command, ranks=8, nodes=Nodes(2, 1, "10.0.0.1")))   one of several, each started by somebody
launch(LaunchPlan(command))                                  as ModelArts says; one rank elsewhere
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from paceline.rank_tables import write
from paceline.training import rank_environment
from paceline.training.placement import Nodes, Placement, even, of_table, on_modelarts, platform_table, wait_for_table
from paceline.training.rank_environment import SCHEDULER, Framework
from paceline.training.rank_process import LOG, Keeper, RankProcess
from paceline.training.shown_output import Output
from paceline.training.signals import Signals

RUN_ID = "PACELINE_RUN_ID"
_LOOK = 0.02
"""Seconds between two looks at the ranks."""
_TABLE_PATIENCE = 1800.0


class Show(str, Enum):
    """Whose output is on the terminal too; ModelArts shows every host's last card."""

    first = "first"
    last = "last"
    all = "all"
    none = "none"


@dataclass(frozen=True)
class LaunchPlan:
    command: tuple[str, ...]
    ranks: int | None = None
    """On each host; None: as ModelArts or the rank table says, else one."""
    hosts: tuple[str, ...] = ()
    log_dir: Path = Path("log")
    env: Mapping[str, str] = field(default_factory=dict)
    framework: Framework = Framework.torch
    nodes: Nodes | None = None
    rank_table: Path | None = None
    show: Show = Show.first
    grace: float = 30.0
    """Seconds between SIGTERM and SIGKILL."""
    until_input_ends: bool = False
    """Stop when standard input ends: how a launcher elsewhere says that it is gone."""


def launch(plan: LaunchPlan, say: Callable[[str], None] | None = None) -> int:
    """Run the job; its exit code is that of the rank that failed first, or 128 + the signal that stopped it."""
    if plan.hosts:
        from paceline.training.over_ssh import launch_over_ssh

        return launch_over_ssh(plan, say or _to_stderr)
    placement, table = place(plan)
    with Signals() as signals, Keeper(plan.grace) as keeper:
        return _Job(plan, placement, table, keeper, say or _to_stderr).run(signals)


def place(plan: LaunchPlan) -> tuple[Placement, Path | None]:
    """This host's ranks, and the rank table MindSpore is to read (if it is to read one)."""
    if plan.rank_table is not None:
        path = plan.rank_table.absolute()
        return of_table(path, plan.nodes or Nodes(), named=plan.nodes is not None), path
    platform = on_modelarts(os.environ) if plan.ranks is None and plan.nodes is None else None
    if platform is None:
        return even(plan.ranks or 1, plan.nodes or Nodes()), None
    ranks, nodes = platform
    path_given = platform_table(os.environ)
    if plan.framework is Framework.torch or path_given is None or os.environ.get("MA_RUN_METHOD") == "msrun":
        return even(ranks, nodes), None
    entries = wait_for_table(path_given, _TABLE_PATIENCE)
    own = (plan.log_dir / "rank_table.json").absolute()
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(write(entries))
    return of_table(own, nodes, named=True), own


class _Job:
    def __init__(
        self, plan: LaunchPlan, placement: Placement, table: Path | None, keeper: Keeper, say: Callable[[str], None]
    ) -> None:
        self._plan, self._placement, self._table = plan, placement, table
        self._keeper, self._say = keeper, say
        self._ranks: list[RankProcess] = []
        self._scheduler: RankProcess | None = None
        self._output = Output(prefixed=plan.show is Show.all)
        self._told_to_stop = False
        self._began = time.monotonic()

    def run(self, signals: Signals) -> int:
        try:
            self._start()
            return self._watch(signals)
        finally:
            self._end(signals)
            self._output.copy()

    def _start(self) -> None:
        placement, plan = self._placement, self._plan
        base = {**os.environ, **plan.env}
        if placement.nodes == 1:  # several hosts have it from whoever started them all
            base.setdefault(RUN_ID, new_run_id())
        if rank_environment.needs_scheduler(placement, plan.framework, self._table) and placement.node == 0:
            log = plan.log_dir / SCHEDULER / LOG
            self._scheduler = self._begin(SCHEDULER, base | rank_environment.of_scheduler(placement), log)
        for place in placement.here:
            own = rank_environment.of_rank(placement, place, plan.framework, self._table)
            log = plan.log_dir / f"rank_{place.rank}" / LOG
            self._ranks.append(self._begin(f"rank {place.rank}", base | own, log))
        shown = {Show.first: self._ranks[:1], Show.last: self._ranks[-1:], Show.all: self._ranks, Show.none: []}
        for rank in shown[plan.show]:
            self._output.follow(rank.name, rank.log, rank.first_byte)

    def _begin(self, name: str, environment: Mapping[str, str], log: Path) -> RankProcess:
        started = RankProcess(name, self._plan.command, environment, log)
        self._keeper.watch(started)
        return started

    def _watch(self, signals: Signals) -> int:
        running = list(self._ranks)
        while running:
            self._output.copy()
            ended = [rank for rank in self._all() if rank in running and self._ended(rank)]
            failed = [rank for rank in ended if rank.code]
            if self._scheduler and self._ended(self._scheduler) and self._scheduler.code:
                failed.append(self._scheduler)
            if failed:
                return self._failure(failed)
            running = [rank for rank in running if rank not in ended]
            number = signals.take() or (signal.SIGTERM if self._input_ended() else 0)
            if number in (signal.SIGUSR1, signal.SIGUSR2):
                self._send(number)
            elif number:
                self._say(f"paceline: {signal.Signals(number).name}; stopping {len(running)} ranks")
                self._send(number)
                self._told_to_stop = True
                return 128 + number
            time.sleep(_LOOK)
        return 0

    def _failure(self, failed: list[RankProcess]) -> int:
        # Several may have ended between two looks: the one that fell silent first dragged the others along.
        first = min(failed, key=lambda rank: rank.silent_since)
        others = sum(rank.code is None for rank in self._all())
        after = time.monotonic() - self._began
        stopping = f"; stopping {'1 other' if others == 1 else f'{others} others'}" if others else ""
        self._output.copy()
        self._say(f"paceline: {first.name} failed after {after:.1f} s: {first.fate}{stopping}")
        for rank in (rank for rank in failed if rank is not first):
            self._say(f"          {rank.name} failed with it: {rank.fate}")
        self._say(f"          its last lines ({first.log}):")
        for line in first.last_lines():
            self._say(f"          | {line}")
        assert first.code is not None
        return first.code

    def _end(self, signals: Signals) -> None:
        """Nobody is left when this returns; a second signal shortens the wait."""
        if not self._told_to_stop:  # a second signal would cut short what a rank still brings to safety
            self._told_to_stop = True
            self._send(signal.SIGTERM)
        until = time.monotonic() + self._plan.grace
        while not all(self._ended(rank) for rank in self._all()):
            self._output.copy()
            if time.monotonic() >= until or signals.take() in (signal.SIGINT, signal.SIGTERM):
                self._send(signal.SIGKILL)
            time.sleep(_LOOK)

    def _ended(self, rank: RankProcess) -> bool:
        known = rank.code is not None
        if rank.ended() and not known:
            self._keeper.forget(rank)
        return rank.code is not None

    def _send(self, number: int) -> None:
        for rank in self._all():
            rank.send(number)

    def _all(self) -> list[RankProcess]:
        return [*self._ranks, *([self._scheduler] if self._scheduler else [])]

    def _input_ended(self) -> bool:
        if not self._plan.until_input_ends:
            return False
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], 0)
        return bool(readable) and not os.read(sys.stdin.fileno(), 4096)


def new_run_id() -> str:
    """Tells this start of a job from all others, for its ranks."""
    return secrets.token_hex(8)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
