"""Launch one process per card and stop them together: the first failure stops all ranks and is reported.

launch(LaunchPlan(("python", "train.py"), ranks=8))                   on this host
launch(LaunchPlan(command, ranks=8, hosts=("a", "b")))                on other hosts, over ssh
launch(LaunchPlan(command, ranks=8, nodes=Nodes(2, 1, "10.0.0.1")))   one node of several, each started separately
launch(LaunchPlan(command))                                           as ModelArts configures it; else one rank
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from paceline.core.rank_tables import rank_table_json
from paceline.training.launcher import rank_environment
from paceline.training.launcher.launch_plan import RUN_ID, LaunchPlan, ShownRanks, new_run_id
from paceline.training.launcher.log_tee import LogTee
from paceline.training.launcher.rank_environment import SCHEDULER, Framework
from paceline.training.launcher.rank_placement import (
    Nodes,
    Placement,
    modelarts_nodes,
    modelarts_table_path,
    place_by_table,
    place_evenly,
    wait_for_table,
)
from paceline.training.launcher.rank_process import LOG, OrphanReaper, RankProcess
from paceline.training.launcher.signal_queue import SignalQueue

_POLL = 0.02
"""Seconds between two checks of the ranks."""
_TABLE_TIMEOUT = 1800.0


def launch(plan: LaunchPlan, report: Callable[[str], None] | None = None) -> int:
    """Run the job; returns the exit code of the rank that failed first, or 128 + the signal that stopped the job."""
    if plan.hosts:
        from paceline.training.launcher.ssh_launcher import launch_over_ssh

        return launch_over_ssh(plan, report or _to_stderr)
    placement, table = place_ranks(plan)
    with SignalQueue() as signals, OrphanReaper(plan.grace) as reaper:
        return _LocalJob(plan, placement, table, reaper, report or _to_stderr).run(signals)


def place_ranks(plan: LaunchPlan) -> tuple[Placement, Path | None]:
    """Ranks of this host, and the rank table for MindSpore, if it needs one."""
    if plan.rank_table is not None:
        path = plan.rank_table.absolute()
        return place_by_table(path, plan.nodes or Nodes(), named=plan.nodes is not None), path
    platform = modelarts_nodes(os.environ) if plan.ranks is None and plan.nodes is None else None
    if platform is None:
        return place_evenly(plan.ranks or 1, plan.nodes or Nodes()), None
    ranks, nodes = platform
    path_given = modelarts_table_path(os.environ)
    if plan.framework is Framework.torch or path_given is None or os.environ.get("MA_RUN_METHOD") == "msrun":
        return place_evenly(ranks, nodes), None
    entries = wait_for_table(path_given, _TABLE_TIMEOUT)
    own = (plan.log_dir / "rank_table.json").absolute()
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(rank_table_json(entries))
    return place_by_table(own, nodes, named=True), own


class _LocalJob:
    def __init__(
        self,
        plan: LaunchPlan,
        placement: Placement,
        table: Path | None,
        reaper: OrphanReaper,
        report: Callable[[str], None],
    ) -> None:
        self._plan, self._placement, self._table = plan, placement, table
        self._reaper, self._report = reaper, report
        self._ranks: list[RankProcess] = []
        self._scheduler: RankProcess | None = None
        self._output = LogTee(prefixed=plan.show is ShownRanks.all)
        self._stop_sent = False
        self._began = time.monotonic()

    def run(self, signals: SignalQueue) -> int:
        try:
            self._start()
            return self._watch(signals)
        finally:
            self._end(signals)
            self._output.copy()

    def _start(self) -> None:
        placement, plan = self._placement, self._plan
        base = {**os.environ, **plan.env}
        if placement.nodes == 1:  # with several hosts, the process that started them sets it
            base.setdefault(RUN_ID, new_run_id())
        if rank_environment.needs_scheduler(placement, plan.framework, self._table) and placement.node == 0:
            log = plan.log_dir / SCHEDULER / LOG
            self._scheduler = self._begin(SCHEDULER, base | rank_environment.scheduler_variables(placement), log)
        for slot in placement.here:
            own = rank_environment.rank_variables(placement, slot, plan.framework, self._table)
            log = plan.log_dir / f"rank_{slot.rank}" / LOG
            self._ranks.append(self._begin(f"rank {slot.rank}", base | own, log))
        shown = {
            ShownRanks.first: self._ranks[:1],
            ShownRanks.last: self._ranks[-1:],
            ShownRanks.all: self._ranks,
            ShownRanks.none: [],
        }
        for rank in shown[plan.show]:
            self._output.follow(rank.name, rank.log, rank.first_byte)

    def _begin(self, name: str, environment: Mapping[str, str], log: Path) -> RankProcess:
        started = RankProcess(name, self._plan.command, environment, log)
        self._reaper.watch(started)
        return started

    def _watch(self, signals: SignalQueue) -> int:
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
                self._report(f"paceline: {signal.Signals(number).name}; stopping {len(running)} ranks")
                self._send(number)
                self._stop_sent = True
                return 128 + number
            time.sleep(_POLL)
        return 0

    def _failure(self, failed: list[RankProcess]) -> int:
        # Several may have exited since the last check: the one whose log ended first caused the others to fail.
        first = min(failed, key=lambda rank: rank.last_output_ns)
        others = sum(rank.code is None for rank in self._all())
        after = time.monotonic() - self._began
        stopping = f"; stopping {'1 other' if others == 1 else f'{others} others'}" if others else ""
        self._output.copy()
        self._report(f"paceline: {first.name} failed after {after:.1f} s: {first.exit_reason}{stopping}")
        for rank in (rank for rank in failed if rank is not first):
            self._report(f"          {rank.name} also failed: {rank.exit_reason}")
        self._report(f"          last lines of its log ({first.log}):")
        for line in first.last_lines():
            self._report(f"          | {line}")
        assert first.code is not None
        return first.code

    def _end(self, signals: SignalQueue) -> None:
        """Stop all ranks; a second signal shortens the wait."""
        if not self._stop_sent:  # a second SIGTERM would interrupt the ranks' final uploads
            self._stop_sent = True
            self._send(signal.SIGTERM)
        until = time.monotonic() + self._plan.grace
        while not all(self._ended(rank) for rank in self._all()):
            self._output.copy()
            if time.monotonic() >= until or signals.take() in (signal.SIGINT, signal.SIGTERM):
                self._send(signal.SIGKILL)
            time.sleep(_POLL)

    def _ended(self, rank: RankProcess) -> bool:
        known = rank.code is not None
        if rank.ended() and not known:
            self._reaper.forget(rank)
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


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
