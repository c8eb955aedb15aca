"""State shared by all workers of a transfer: both stores, journal, retries, and the outcome of every file."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from paceline.storage.store_errors import ChangedError, CorruptError, FullError, StorageError
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import Store
from paceline.storage.transfer.journal import Journal
from paceline.storage.transfer.retry import Retrier, TransferStopped
from paceline.storage.transfer.transfer_plan import FileTransfer
from paceline.storage.transfer.transfer_report import ProgressCounter, TransferFailure, TransferReport

_STOPPED = "not attempted: the transfer was stopped"


class TransferContext:
    """Used by many threads."""

    def __init__(
        self,
        source: Store,
        target: Store,
        *,
        journal: Journal,
        report: TransferReport,
        counter: ProgressCounter,
        retry: Retrier,
    ) -> None:
        self.source, self.target, self.journal, self.counter = source, target, journal, counter
        self.retry = retry
        self.transferred: list[tuple[FileTransfer, StoredFile]] = []
        """Every file that was transferred, with the file at the target."""
        self._report = report
        self._lock = threading.Lock()

    def record_transferred(self, files: Sequence[tuple[FileTransfer, StoredFile]], *, uncounted_bytes: int) -> None:
        """Files with what they are at the target; `uncounted_bytes` of them were not yet reported as progress."""
        if not files:
            return
        self.journal.record_done((move.item, written) for move, written in files)
        with self._lock:
            self.transferred.extend(files)
            self._report.moved += len(files)
            self._report.moved_bytes += sum(move.item.size for move, _ in files)
        self.counter.add(len(files), uncounted_bytes)

    def record_failure(self, move: FileTransfer, error: StorageError | TransferStopped) -> None:
        if isinstance(error, TransferStopped):
            self.record_skipped(move)
            return
        if isinstance(error, FullError):
            self.retry.stop.set()
        hint = f" ({error.hint})" if error.hint else ""
        self._fail(move, f"{error}{hint}", retryable=isinstance(error, (ChangedError, CorruptError)))

    def record_skipped(self, move: FileTransfer) -> None:
        self._fail(move, _STOPPED)

    def _fail(self, move: FileTransfer, reason: str, *, retryable: bool = False) -> None:
        with self._lock:
            self._report.failures.append(TransferFailure(move.item.key, reason, retryable))
        self.counter.add(1, 0)
