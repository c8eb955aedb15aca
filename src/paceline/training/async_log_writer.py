"""Format and write log lines in a thread: after a long computation Python code runs slowly, with cold caches.

The thread polls a few times per second, because waking it would cost the training loop its core. `kill -9` or a crash in
native code loses at most that fraction of a second; every other exit of the process flushes.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

_log = logging.getLogger("paceline.training")


T = TypeVar("T")
POLL_SECONDS = 0.2
"""Seconds between two polls."""
_FLUSH_SECONDS = 10.0
"""Seconds to wait at exit for a terminal or disk that blocks."""


class AsyncLogWriter(Generic[T]):
    """Queue of (time, facts); `lines` formats them. The first `add` starts the thread."""

    def __init__(self, lines: Callable[[T], Iterable[str]]) -> None:
        self._lines = lines
        self._queue: deque[tuple[float, T]] = deque()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def add(self, at: float, facts: T) -> None:
        """at: time.time()"""
        self._queue.append((at, facts))
        if self._thread is None:
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(self._stop,), name="paceline-lines", daemon=True)
            self._thread.start()
            atexit.register(self.flush)  # in case the caller does not

    def flush(self) -> None:
        """Returns when everything added so far has been written."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join(_FLUSH_SECONDS)
            self._thread = None
            atexit.unregister(self.flush)

    def _run(self, stop: threading.Event) -> None:
        last = False
        while not last:
            last = stop.wait(POLL_SECONDS)
            while self._queue:
                at, facts = self._queue.popleft()
                for line in self._lines(facts):
                    _write(at, line)


def _write(at: float, line: str) -> None:
    if _log.isEnabledFor(logging.INFO):
        record = _log.makeRecord(_log.name, logging.INFO, __file__, 0, "%s", (line,), None)
        record.created, record.msecs = at, at % 1 * 1000
        _log.handle(record)
