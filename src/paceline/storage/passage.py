"""What all pieces of a transfer share: both stores, the journal, patience, and where it is noted how each file fared."""

from __future__ import annotations

import threading

from paceline.storage.journal import Journal
from paceline.storage.plan import Move
from paceline.storage.report import Counter, Failure, Report
from paceline.storage.retry import Retry, Stopped
from paceline.storage.store import ChangedError, CorruptError, FullError, Item, StorageError, Store

_STOPPED = "not tried: the transfer was stopped"


class Passage:
    """From one store to another; used by many threads."""

    def __init__(
        self, source: Store, target: Store, *, journal: Journal, report: Report, counter: Counter, retry: Retry
    ) -> None:
        self.source, self.target, self.journal, self.counter = source, target, journal, counter
        self.retry = retry
        self.landed: list[tuple[Move, Item]] = []
        """Every file that arrived, with what it is at the target."""
        self._report = report
        self._lock = threading.Lock()

    def arrived(self, move: Move, landed: Item, *, counted: int) -> None:
        self.journal.done(move.item, landed)
        with self._lock:
            self.landed.append((move, landed))
            self._report.moved += 1
            self._report.moved_bytes += move.item.size
        self.counter.add(1, counted)

    def failed(self, move: Move, error: StorageError | Stopped) -> None:
        if isinstance(error, Stopped):
            self.skipped(move)
            return
        if isinstance(error, FullError):
            self.retry.stop.set()
        hint = f" ({error.hint})" if error.hint else ""
        self._fail(move, f"{error}{hint}", again=isinstance(error, ChangedError | CorruptError))

    def skipped(self, move: Move) -> None:
        self._fail(move, _STOPPED)

    def _fail(self, move: Move, reason: str, *, again: bool = False) -> None:
        with self._lock:
            self._report.failures.append(Failure(move.item.key, reason, again))
        self.counter.add(1, 0)
