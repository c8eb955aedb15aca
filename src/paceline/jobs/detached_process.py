"""Start processes that outlive us, and recognise them by process id and start time."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec


class DetachedProcess(msgspec.Struct, frozen=True):
    pid: int
    start_ticks: str
    """Start time in the kernel's ticks; tells a process from a later one with the same id."""

    @property
    def alive(self) -> bool:
        _reap(self.pid)
        return bool(self.start_ticks) and _start_ticks(self.pid) == self.start_ticks

    def send(self, number: int = signal.SIGTERM, *, group: bool = False) -> None:
        if self.alive:
            try:
                (os.killpg if group else os.kill)(self.pid, number)
            except ProcessLookupError:
                pass  # it ended between looking and sending


def identify_process(pid: int) -> DetachedProcess:
    return DetachedProcess(pid, _start_ticks(pid))


def start_detached(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> DetachedProcess:
    """In its own session: neither Ctrl-C nor closing the terminal reaches it."""
    write = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), write, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(command[0], list(command), dict(environment), file_actions=files, setsid=True)
    return identify_process(pid)


def _start_ticks(pid: int) -> str:
    """Empty when there is no such process, or only a zombie."""
    try:
        # The name in parentheses may contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    state, started = fields[0], fields[19]
    return "" if state in "ZX" else started


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass  # not our child
