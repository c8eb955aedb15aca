"""An append-only log in segments: bounded in memory and on disk, written by a thread, readable after kill -9.

Lines wait in memory until `write` is called (twice a second, by one thread at a time); the oldest are dropped, and
counted, when the disk does not take them. A segment that is full is closed and a new one begun; the oldest beyond
`kept` are removed, and these are only ever files this process has made.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

MOST_PENDING = 32 << 20
"""Characters."""


class SegmentedLog:
    """`head(number)` gives the first line of each segment."""

    def __init__(
        self, directory: Path, name: str, head: Callable[[int], str], *, lines: int, size: int, kept: int = 2
    ) -> None:
        self.directory, self.name = directory, name
        self._head, self._lines, self._size, self._kept = head, lines, size, kept
        self._pending: deque[str] = deque()
        self._waiting = 0
        self._file = -1
        self._number = 0
        self._in_segment = self._bytes = 0
        self._torn = False
        self._complained = False
        self.lost = 0
        """Lines that were dropped because the disk did not take them in time."""

    def append(self, line: str) -> None:
        self._pending.append(line)
        self._waiting += len(line)
        while self._waiting > MOST_PENDING and self._pending:
            self._waiting -= len(self._pending.popleft())
            self.lost += 1

    def write(self) -> None:
        """Hand everything over to the operating system; what it refuses is said once, and training goes on."""
        try:
            if self._file < 0:
                self._begin()
            while self._pending:
                self._write_some()
            self._waiting = 0
        except OSError as error:
            self.complain(error)

    def segments(self) -> list[Path]:
        """Those on disk, oldest first."""
        first = max(1, self._number - self._kept + 1)
        return [self._path(number) for number in range(first, self._number + 1)]

    def close(self) -> None:
        self.write()
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _write_some(self) -> None:
        """As many lines as the segment still takes."""
        if self._in_segment >= self._lines or self._bytes >= self._size:
            self._begin()
        taken: list[str] = []
        while self._pending and len(taken) < self._lines - self._in_segment:
            taken.append(self._pending.popleft())
        data = "".join(taken).encode()
        if self._torn:
            data = b"\n" + data  # what the full disk cut off must not swallow the next line
        try:
            written = os.write(self._file, data)
        except OSError:
            self.lost += len(taken)
            raise
        self._torn = written < len(data)
        self._in_segment += len(taken)
        self._bytes += written

    def _begin(self) -> None:
        number = self._number + 1
        self.directory.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        file = os.open(self._path(number), flags, 0o644)
        if self._file >= 0:
            os.close(self._file)
        head = self._head(number).encode()
        self._file, self._number, self._in_segment, self._bytes, self._torn = file, number, 0, len(head), False
        os.write(file, head)
        if number > self._kept:
            self._path(number - self._kept).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.directory / f"{self.name}-{number:06}.jsonl"

    def complain(self, error: OSError) -> None:
        """Once: training goes on, whatever the disk does."""
        if not self._complained:
            self._complained = True
            import logging

            logging.getLogger("paceline.recorder").warning(
                "%s: cannot be written (%s); training goes on, recording has gaps",
                self.directory, error,
            )  # fmt: skip
