"""Run a command and measure its whole process tree: CPU seconds, wall time, peak memory."""

from __future__ import annotations

import compileall
import os
import resource
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import paceline

# As pip does with what it installs; a checkout installed with -e would compile itself in every run where the
# environment forbids writing byte code.
compileall.compile_dir(Path(paceline.__file__).parent, quiet=1)


@dataclass(frozen=True)
class Cost:
    cpu: float
    wall: float
    peak_mb: float
    exit_code: int


def measure(
    command: list[str], *, env: dict[str, str] | None = None, log: Path | None = None, memory: bool = True
) -> Cost:
    """CPU of all descendants that were waited for; peak = largest sum of their proportional memory, sampled.

    Sampling stops the process for a moment; without `memory` nothing is sampled, and the peak is 0.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with (log or Path(os.devnull)).open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
        sampler = _Sampler(process.pid)
        if memory:
            sampler.start()
        code = process.wait()
    if memory:
        sampler.stop()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, time.monotonic() - began, sampler.peak / 1e6, code)


class _Sampler(threading.Thread):
    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.root, self.peak, self._done = root, 0, threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.05):
            self.peak = max(self.peak, sum(_proportional(pid) for pid in _tree(self.root)))

    def stop(self) -> None:
        self._done.set()
        self.join()


def _tree(root: int) -> list[int]:
    found, frontier = [root], [root]
    while frontier:
        pid = frontier.pop()
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        except OSError:
            continue  # it ended while we looked
        found += children
        frontier += children
    return found


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
