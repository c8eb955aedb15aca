"""What one task may cost: in a worker process that may die, the kernel ends what takes too much time or memory.

Native parsers cannot be interrupted from Python, and a crash cannot be caught: so the process ends, and the task with it.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 120.0
BYTES_PER_SECOND = 1 << 20
"""Of processor time: a twentieth of the slowest reader's speed."""
MEMORY = 4 << 30
MEMORY_PER_BYTE = 8
"""Decoded JSON takes up to this many times its bytes."""

_expendable = False


def mark_expendable() -> None:
    """This process runs tasks and nothing else."""
    global _expendable
    _expendable = True


@contextmanager
def task_budget(size: int) -> Iterator[None]:
    """Limits for a task that parses so many bytes; none in a process that other work needs."""
    if not _expendable:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_lower(memory_budget(size), before), before[1]))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, wherever it is
    signal.setitimer(signal.ITIMER_PROF, seconds_budget(size))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_DATA, before)


def seconds_budget(size: int) -> float:
    """
    >>> seconds_budget(0), seconds_budget(60 << 20)
    (120.0, 180.0)
    """
    return SECONDS + size / BYTES_PER_SECOND


def memory_budget(size: int) -> int:
    """
    >>> memory_budget(1 << 30) >> 30
    12
    """
    return MEMORY + MEMORY_PER_BYTE * size


def _lower(wanted: int, limits: tuple[int, int]) -> int:
    return min([wanted, *(limit for limit in limits if limit != resource.RLIM_INFINITY)])
