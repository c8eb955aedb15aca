"""Log lines made and written by a thread: after a long computation the interpreter is out of the caches, and slow."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Generic, TypeVar

from paceline.training.telling import log

T = TypeVar("T")
_PATIENCE = 10.0
"""Seconds to wait at the end for a terminal or a disk that takes nothing."""


class LineWriter(Generic[T]):
    """Takes facts and the time they are of, in order; `lines` makes text of them. The first `add` starts the thread."""

    def __init__(self, lines: Callable[[T], Iterable[str]]) -> None:
        self._lines = lines
        self._waiting: SimpleQueue[tuple[float, T] | threading.Event] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, at: float, facts: T) -> None:
        """at: time.time()"""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="paceline-lines", daemon=True)
            self._thread.start()
            atexit.register(self.flush)  # whoever forgets to close it
        self._waiting.put((at, facts))

    def flush(self) -> None:
        """Returns when everything added so far is where the loggers' handlers write it."""
        if self._thread is not None:
            written = threading.Event()
            self._waiting.put(written)
            written.wait(_PATIENCE)

    def close(self) -> None:
        self.flush()
        atexit.unregister(self.flush)

    def _run(self) -> None:
        while True:
            item = self._waiting.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            at, facts = item
            for line in self._lines(facts):
                _write(at, line)


def _write(at: float, line: str) -> None:
    if log.isEnabledFor(logging.INFO):
        record = log.makeRecord(log.name, logging.INFO, __file__, 0, "%s", (line,), None)
        record.created, record.msecs = at, at % 1 * 1000
        log.handle(record)
