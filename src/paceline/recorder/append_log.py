"""Append-only log in segments: bounded in memory and on disk, still readable after kill -9.

Lines wait in memory until `write` is called (once a second, by one thread at a time). When the disk cannot keep up, the
oldest waiting lines are dropped and counted. A full segment is closed and a new one begun; segments older than the last
`kept` are removed, which only ever removes files this process has created.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

MAX_PENDING = 32 << 20
"""Characters waiting in memory."""


class SegmentedLog:
    """`head(number)` gives the first line of each segment."""

    def __init__(
        self, directory: Path, name: str, head: Callable[[int], str], *, lines: int, size: int, kept: int = 2
    ) -> None:
        self.directory, self.name = directory, name
        self._head, self._max_lines, self._max_bytes, self._kept = head, lines, size, kept
        self._pending: deque[str] = deque()
        self._pending_size = 0
        self._file = -1
        self._number = 0
        self._lines = self._bytes = 0
        """In the current segment."""
        self._torn = False
        self._warned = False
        self.lost = 0
        """Lines dropped because they could not be written in time."""

    def append(self, line: str) -> None:
        self._pending.append(line)
        self._pending_size += len(line)
        while self._pending_size > MAX_PENDING and self._pending:
            self._pending_size -= len(self._pending.popleft())
            self.lost += 1

    def write(self) -> None:
        """Hand all pending lines to the operating system; an error is reported once, and training goes on."""
        try:
            if self._file < 0:
                self._begin_segment()
            while self._pending:
                self._fill_segment()
            self._pending_size = 0
        except OSError as error:
            self.warn_disk_error(error)

    def segments(self) -> list[Path]:
        """Those on disk, oldest first."""
        first = max(1, self._number - self._kept + 1)
        return [self._path(number) for number in range(first, self._number + 1)]

    def close(self) -> None:
        self.write()
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def warn_disk_error(self, error: OSError) -> None:
        """Once per log."""
        if not self._warned:
            self._warned = True
            import logging

            logging.getLogger("paceline.recorder").warning(
                "%s: could not write the recording (%s); training goes on, the recording has gaps",
                self.directory,
                error,
            )

    def _fill_segment(self) -> None:
        """Write as many lines as the segment still takes."""
        if self._lines >= self._max_lines or self._bytes >= self._max_bytes:
            self._begin_segment()
        taken: list[str] = []
        while self._pending and len(taken) < self._max_lines - self._lines:
            taken.append(self._pending.popleft())
        data = "".join(taken).encode()
        if self._torn:
            data = b"\n" + data  # a line cut off by a full disk must not swallow the next one
        try:
            written = os.write(self._file, data)
        except OSError:
            self.lost += len(taken)
            raise
        self._torn = written < len(data)
        self._lines += len(taken)
        self._bytes += written

    def _begin_segment(self) -> None:
        number = self._number + 1
        self.directory.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        file = os.open(self._path(number), flags, 0o644)
        if self._file >= 0:
            os.close(self._file)
        head = self._head(number).encode()
        self._file, self._number, self._lines, self._bytes, self._torn = file, number, 0, len(head), False
        os.write(file, head)
        if number > self._kept:
            self._path(number - self._kept).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.directory / f"{self.name}-{number:06}.jsonl"
