"""Log lines made and written by a thread: after a long computation the interpreter is out of the caches, and slow.

The thread looks for new ones by itself, a few times a second: waking it would cost the training loop its core. So what
`kill -9` or a crash in native code loses is at most that fraction of a second; every other end of a process waits.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from paceline.training.telling import log

T = TypeVar("T")
PAUSE = 0.2
"""Seconds between two looks."""
_PATIENCE = 10.0
"""Seconds to wait at the end for a terminal or a disk that takes nothing."""


class LineWriter(Generic[T]):
    """Takes facts and the time they are of; `lines` makes text of them. The first `add` starts the thread."""

    def __init__(self, lines: Callable[[T], Iterable[str]]) -> None:
        self._lines = lines
        self._waiting: deque[tuple[float, T]] = deque()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def add(self, at: float, facts: T) -> None:
        """at: time.time()"""
        self._waiting.append((at, facts))
        if self._thread is None:
            self._over = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(self._over,), name="paceline-lines", daemon=True)
            self._thread.start()
            atexit.register(self.flush)  # whoever forgets to

    def flush(self) -> None:
        """Returns when everything added so far is with the logger's handlers."""
        if self._thread is not None:
            self._over.set()
            self._thread.join(_PATIENCE)
            self._thread = None
            atexit.unregister(self.flush)

    def _run(self, over: threading.Event) -> None:
        last = False
        while not last:
            last = over.wait(PAUSE)
            while self._waiting:
                at, facts = self._waiting.popleft()
                for line in self._lines(facts):
                    _write(at, line)


def _write(at: float, line: str) -> None:
    if log.isEnabledFor(logging.INFO):
        record = log.makeRecord(log.name, logging.INFO, __file__, 0, "%s", (line,), None)
        record.created, record.msecs = at, at % 1 * 1000
        log.handle(record)
