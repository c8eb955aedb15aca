"""The result of a transfer: counts, failed files, and progress while it runs."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Callable

from paceline.core.errors import PacelineError
from paceline.storage.secret import redact


@dataclass(frozen=True)
class TransferFailure:
    key: str
    reason: str
    retryable: bool = False
    """The source was being written, or a large file was damaged on the way: another round may succeed."""

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"


@dataclass(frozen=True)
class TransferProgress:
    """State of a running transfer, for a progress bar."""

    files: int
    files_total: int
    bytes: int
    bytes_total: int


OnProgress = Callable[[TransferProgress], None]


@dataclass
class TransferReport:
    """Filled while the transfer runs: files moved, files the target already had (`same`), and failures."""

    source: str
    target: str
    moved: int = 0
    moved_bytes: int = 0
    same: int = 0
    same_bytes: int = 0
    unfinished: list[str] = field(default_factory=list)
    pruned: int = 0
    retries: int = 0
    seconds: float = 0.0
    failures: list[TransferFailure] = field(default_factory=list)
    present: frozenset[str] = field(default=frozenset(), repr=False)
    """Keys that the target has now, verified."""

    def raise_failures(self) -> TransferReport:
        if self.failures:
            raise TransferError(self)
        return self


class TransferError(PacelineError):
    """Some files were not transferred; those that were are safe, and running again transfers the rest."""

    def __init__(self, report: TransferReport) -> None:
        shown = [f"  {redact(str(failure))}" for failure in report.failures[:10]]
        more = len(report.failures) - len(shown)
        if more > 0:
            shown.append(f"  … and {more:,} more")
        head = f"{report.source} → {report.target}: {len(report.failures):,} not transferred, {report.moved:,} moved"
        super().__init__(
            "\n".join([head, *shown]), hint="run the same command again: it transfers only what is missing"
        )
        self.report = report


class ProgressCounter:
    """Progress from many threads, reported at most ten times per second."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._last = 0.0
        self.now = TransferProgress(0, 0, 0, 0)

    def plan(self, files: int, size: int) -> None:
        self._change(files_total=files, bytes_total=size)

    def add(self, files: int, size: int) -> None:
        self._change(files=files, bytes=size)

    def _change(self, *, files: int = 0, files_total: int = 0, bytes: int = 0, bytes_total: int = 0) -> None:
        with self._lock:
            now = self.now
            self.now = TransferProgress(
                now.files + files, now.files_total + files_total, now.bytes + bytes, now.bytes_total + bytes_total
            )
            due = time.monotonic() - self._last > 0.1 or self.now.files == self.now.files_total
            if self._on_progress and due:
                self._last = time.monotonic()
                self._on_progress(self.now)
