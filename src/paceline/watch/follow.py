"""Following the logs of all ranks: each look reads only what was appended since the last one.

At first sight of a long log only its end is read. New ranks and new segments are picked up as they appear; a rank that
was started again is the newer of its directories.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from paceline.watch.place import Growing, Place
from paceline.watch.ranks import RankState, head_of

FIRST_LOOK = 128 << 10
HEAD = 64 << 10
MOST_AT_ONCE = 16 << 20


@dataclass
class _Reading:
    """How far a file was read, and the piece of a line at its end."""

    offset: int = 0
    rest: bytes = b""


class Follower:
    """`look()` brings `ranks` up to date; `read_bytes` counts what that took."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._files: dict[str, _Reading] = {}
        self._sessions: dict[str, RankState] = {}
        self.read_bytes = 0

    def look(self) -> None:
        files = sorted(self._place.files())
        for file in files:
            if file.name.startswith("summary-"):
                self._follow(file)
        for file in files:
            session = self._sessions.get(file.directory)
            if session is not None and session.peers is None and file.name.startswith("steps-"):
                self._look_for_groups(file, session)

    @property
    def jobs(self) -> dict[tuple[str, int], dict[int, RankState]]:
        """rank → its newest session, by job (name, world size); the job that began last comes last."""
        jobs: dict[tuple[str, int], dict[int, RankState]] = {}
        for session in sorted(self._sessions.values(), key=lambda session: session.head.started):
            ranks = jobs.pop(session.job, {})
            jobs[session.job] = {**ranks, session.rank: session}
        return jobs

    def _follow(self, file: Growing) -> None:
        reading = self._files.get(file.key)
        if reading is None:
            reading = self._begin(file)
        if reading is None or file.size <= reading.offset:
            return
        data = self._read(file, reading.offset, min(file.size - reading.offset, MOST_AT_ONCE))
        if not data:
            return
        session = self._sessions[file.directory]
        reading.offset += len(data)
        *lines, reading.rest = (reading.rest + data).split(b"\n")
        for line in lines:
            session.take(line)
        session.heard = max(session.heard, file.changed or time.time())

    def _begin(self, file: Growing) -> _Reading | None:
        """At first sight: who is it, and where near its end do we begin?"""
        line, newline, _ = self._read(file, 0, min(HEAD, file.size)).partition(b"\n")
        head = head_of(line) if newline else None
        if head is None:
            return None  # not written yet, or not ours
        self._sessions.setdefault(file.directory, RankState(head, file.directory))
        start = max(len(line) + 1, file.size - FIRST_LOOK)
        # Begun in the middle of a line, its piece is passed over because it is no record.
        reading = self._files[file.key] = _Reading(start)
        return reading

    def _look_for_groups(self, file: Growing, session: RankState) -> None:
        reading = self._files.get(file.key)
        if reading is not None:
            return
        data = self._read(file, 0, min(HEAD, file.size))
        lines = data.split(b"\n")[:-1]
        for line in lines[:64]:
            session.take_groups(line)
        if len(lines) > 1:
            self._files[file.key] = _Reading(len(data))  # groups stand at the beginning: once is enough

    def _read(self, file: Growing, start: int, length: int) -> bytes:
        data = self._place.read(file, start, length)
        self.read_bytes += len(data)
        return data
