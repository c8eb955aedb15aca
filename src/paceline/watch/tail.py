"""Follow the logs of all ranks: each poll reads only what was appended since the last one.

Of a long log only the end is read at first. New ranks and new segments are picked up as they appear; of a rank that was
restarted, the newest session counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from paceline.watch.ranks import LiveRank, parse_head
from paceline.watch.source import LogFile, LogSource

FIRST_READ = 128 << 10
"""Bytes read from the end of a log on the first poll."""
DETAILS = 64 << 10
"""Bytes read from the beginning of a detailed log: its groups and first steps."""
DETAIL_STEPS = 16
"""Steps that are enough to know the collectives of a rank."""
MAX_READ = 16 << 20


@dataclass
class _ReadPosition:
    """How far a file was read, and the incomplete line at that point."""

    offset: int = 0
    rest: bytes = b""

    def take_lines(self, data: bytes) -> list[bytes]:
        self.offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        return lines


class LogFollower:
    """`poll()` updates the ranks in `jobs`; `read_bytes` counts the bytes read."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._positions: dict[str, _ReadPosition] = {}
        self._sessions: dict[str, LiveRank] = {}
        self.read_bytes = 0

    def poll(self) -> None:
        files = sorted(self._source.files())
        for file in files:
            if file.name.startswith("summary-"):
                self._follow_summary(file)
        details: dict[str, LogFile] = {}
        for file in files:
            if file.name.startswith("steps-"):
                details.setdefault(file.directory, file)
        for file in details.values():
            self._read_details(file)

    @property
    def jobs(self) -> dict[tuple[str, int], dict[int, LiveRank]]:
        """rank → its newest session, by job (name, world size); the job that was started last comes last."""
        jobs: dict[tuple[str, int], dict[int, LiveRank]] = {}
        for session in sorted(self._sessions.values(), key=lambda session: session.head.started):
            ranks = jobs.pop(session.job, {})
            jobs[session.job] = {**ranks, session.rank: session}
        return jobs

    def _follow_summary(self, file: LogFile) -> None:
        position = self._positions.get(file.key) or self._begin_summary(file)
        if position is None:
            return
        session = self._sessions[file.directory]
        if self._read_lines(file, position, file.size, session.add_summary_line):
            session.last_write = max(session.last_write, file.modified or time.time())

    def _begin_summary(self, file: LogFile) -> _ReadPosition | None:
        """Identify the rank, and choose where near the end to begin."""
        line, newline, _ = self._read(file, 0, min(DETAILS, file.size)).partition(b"\n")
        head = parse_head(line) if newline else None
        if head is None:
            return None  # not written yet, or not a recorder's log
        begin = len(line) + 1
        start = max(begin, file.size - FIRST_READ)
        self._sessions.setdefault(file.directory, LiveRank(head, file.directory, from_start=start == begin))
        # The incomplete line at a start in the middle is skipped, because it is not a record.
        position = self._positions[file.key] = _ReadPosition(start)
        return position

    def _read_details(self, file: LogFile) -> None:
        """The beginning of the detailed log, until enough steps are known."""
        session = self._sessions.get(file.directory)
        if session is not None and len(session.details.steps) < DETAIL_STEPS:
            position = self._positions.setdefault(file.key, _ReadPosition())
            self._read_lines(file, position, min(file.size, DETAILS), session.add_detail_line)

    def _read_lines(self, file: LogFile, position: _ReadPosition, end: int, add: Callable[[bytes], None]) -> bool:
        """Whether something new was read."""
        if end <= position.offset:
            return False
        data = self._read(file, position.offset, min(end - position.offset, MAX_READ))
        for line in position.take_lines(data):
            add(line)
        return bool(data)

    def _read(self, file: LogFile, start: int, length: int) -> bytes:
        data = self._source.read(file, start, length)
        self.read_bytes += len(data)
        return data
