"""A process that outlives us, told apart from a later one with the same number."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec


class Process(msgspec.Struct, frozen=True):
    pid: int
    born: str
    """When it was started, as the kernel counts; a number that is used again has another."""

    @property
    def alive(self) -> bool:
        _reap(self.pid)
        return bool(self.born) and _birth(self.pid) == self.born

    def send(self, number: int = signal.SIGTERM, *, group: bool = False) -> None:
        if self.alive:
            try:
                (os.killpg if group else os.kill)(self.pid, number)
            except ProcessLookupError:
                pass  # it ended between looking and sending


def process_of(pid: int) -> Process:
    return Process(pid, _birth(pid))


def start_detached(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    """In a session of its own: neither Ctrl-C nor closing the terminal reaches it."""
    write = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), write, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(command[0], list(command), dict(environment), file_actions=files, setsid=True)
    return process_of(pid)


def _birth(pid: int) -> str:
    """Empty when there is none, or only its corpse."""
    try:
        # The name in parentheses may hold spaces and parentheses itself.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    state, birth = fields[0], fields[19]
    return "" if state in "ZX" else birth


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass  # somebody else started it
