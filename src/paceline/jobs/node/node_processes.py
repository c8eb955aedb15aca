"""Run the launchers of a job's nodes as child processes: start, watch and stop them together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from paceline.jobs.backend import WorkerStatus
from paceline.jobs.detached_process import identify_process
from paceline.jobs.job_plan import JobPlan
from paceline.jobs.job_state import WorkerEnd, write_process, write_worker
from paceline.jobs.node import node_facts

_GRACE = 30.0
"""Seconds from SIGTERM to SIGKILL; a launcher gives its ranks most of them."""
_POLL = 0.1


class NodeProcesses:
    """Runs nodes of a plan; SIGTERM stops all, and so does the first node that fails."""

    def __init__(self, plan: JobPlan, logs: Mapping[int, Path]) -> None:
        self._plan, self._logs = plan, logs
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.stopped = False

    def run(self, rendezvous: tuple[str, int]) -> int:
        """Run until all have ended; returns the exit code of the first that failed."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        for node, log in self._logs.items():
            self._running[node] = self._start(node, log, rendezvous)
        code, kill_at = 0, float("inf")
        while self._running:
            ended = self._ended()
            code = code or next((each for each in ended if each), 0)
            if (self.stopped or (code and not self._plan.job.single_server_mode)) and kill_at == float("inf"):
                self._send(signal.SIGTERM)
                kill_at = time.monotonic() + _GRACE
            if time.monotonic() > kill_at:
                self._send(signal.SIGKILL)
            time.sleep(_POLL)
        return code or (128 + signal.SIGTERM if self.stopped else 0)

    def _start(self, node: int, log: Path, rendezvous: tuple[str, int]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self._plan.environment(node)}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            if node_facts.VARIABLE in environment:
                facts = [sys.executable, node_facts.__file__]
                subprocess.run(facts, env=environment, stdout=output, stderr=output, check=False, timeout=120)
            process = subprocess.Popen(
                self._plan.command(node, rendezvous),
                cwd=self._plan.path / "code",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        write_process(self._plan.path, identify_process(process.pid), f"worker-{node}")
        return process

    def _ended(self) -> list[int]:
        codes: list[int] = []
        for node, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[node]
                codes.append(code)
                reason = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
                worker = WorkerStatus(f"worker-{node}", code, reason if code else "")
                write_worker(self._plan.path, WorkerEnd(worker, time.time()))
        return codes

    def _send(self, number: int) -> None:
        for process in self._running.values():
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                pass  # it ended between looking and sending

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
