"""What a transfer did: numbers for programs, a list of what failed for people."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.errors import PacelineError
from paceline.storage.secret import redact


@dataclass(frozen=True)
class Failure:
    key: str
    reason: str
    again: bool = False
    """The source was being written, or a large file arrived damaged: worth another round."""

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"


@dataclass(frozen=True)
class Progress:
    """A moment of a transfer, for a progress bar."""

    files: int
    files_total: int
    bytes: int
    bytes_total: int


OnProgress = Callable[[Progress], None]


@dataclass
class Report:
    """Filled while pieces move; files and bytes moved, skipped because they were there, and failed."""

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
    failures: list[Failure] = field(default_factory=list)
    present: frozenset[str] = field(default=frozenset(), repr=False)
    """Keys that are verified at the target now."""

    def raise_failures(self) -> Report:
        if self.failures:
            raise TransferError(self)
        return self


class TransferError(PacelineError):
    """Not everything arrived; what did is safe, and running again moves the rest."""

    def __init__(self, report: Report) -> None:
        shown = [f"  {redact(str(failure))}" for failure in report.failures[:10]]
        more = len(report.failures) - len(shown)
        if more > 0:
            shown.append(f"  … and {more:,} more")
        head = f"{report.source} → {report.target}: {len(report.failures):,} not transferred, {report.moved:,} moved"
        super().__init__("\n".join([head, *shown]), hint="run the same command again: it moves only what is missing")
        self.report = report


class Counter:
    """Progress from many threads, told at most ten times a second."""

    def __init__(self, tell: OnProgress | None) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._last = 0.0
        self.now = Progress(0, 0, 0, 0)

    def plan(self, files: int, size: int) -> None:
        self._change(files_total=files, bytes_total=size)

    def add(self, files: int, size: int) -> None:
        self._change(files=files, bytes=size)

    def _change(self, *, files: int = 0, files_total: int = 0, bytes: int = 0, bytes_total: int = 0) -> None:
        with self._lock:
            now = self.now
            self.now = Progress(
                now.files + files, now.files_total + files_total, now.bytes + bytes, now.bytes_total + bytes_total
            )
            due = time.monotonic() - self._last > 0.1 or self.now.files == self.now.files_total
            if self._tell and due:
                self._last = time.monotonic()
                self._tell(self.now)
