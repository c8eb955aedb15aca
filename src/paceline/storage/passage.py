"""What all pieces of a transfer share: both stores, the journal, patience, and where it is noted how each file fared."""

from __future__ import annotations

import threading
from collections.abc import Sequence

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

    def arrived(self, landed: Sequence[tuple[Move, Item]], *, counted: int) -> None:
        """Files with what they are at the target; `counted` bytes of them were not yet told as progress."""
        if not landed:
            return
        self.journal.done((move.item, item) for move, item in landed)
        with self._lock:
            self.landed.extend(landed)
            self._report.moved += len(landed)
            self._report.moved_bytes += sum(move.item.size for move, _ in landed)
        self.counter.add(len(landed), counted)

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
