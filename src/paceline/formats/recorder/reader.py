"""Reader of the logs of `paceline.profiling.Recorder` (format "light"): one directory per rank and session.

A log is read up to its last complete line, so that ranks that still run or were killed are read too. Recordings of
several jobs in one tree are not mixed: the newest job is read, a note names the others. What the recorder exports beside
its log (ASCEND_PROFILER_OUTPUT) is the same data and is not read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from paceline.core.message import Sentence, message
from paceline.formats.base import RankRecording, RecordingSection
from paceline.formats.recorder import FORMAT
from paceline.formats.recorder.tables import TABLES, read_log
from paceline.storage.file_tree import File, Tree

SCHEMA = "paceline.light/1"
_SEGMENT = re.compile(r"steps-\d{6,}\.jsonl$")
_LONGEST_HEAD = 16 << 20


class LogHead(msgspec.Struct):
    """The first line of a segment of the log."""

    schema: str
    rank: int
    world_size: int
    started: int
    host: str | None = None
    device: int | None = None
    job: str = ""


@dataclass(frozen=True)
class _Session:
    """One rank's directory."""

    directory: str
    head: LogHead
    segments: tuple[File, ...]


@dataclass(frozen=True)
class RecorderReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        sessions = [found for directory in sorted(tree.directories) if (found := _session(tree, directory))]
        if not sessions:
            return
        newest = max(sessions, key=lambda session: session.head.started)
        chosen = [session for session in sessions if _job(session) == _job(newest)]
        notes = _left_out([session for session in sessions if _job(session) != _job(newest)])
        for session in chosen:
            yield self._part(session, notes if session is newest else ())

    def _part(self, session: _Session, notes: tuple[Sentence, ...]) -> RankRecording:
        head = session.head
        read = partial(read_log, tuple(file.path for file in session.segments), head.host, head.device)
        section = RecordingSection("log", TABLES, session.segments, read)
        recorded = f"{head.started:020}"
        return RankRecording(
            self.name, head.rank, session.directory, (section,), recorded=recorded, notes=notes, ring=True
        )


READER = RecorderReader()


def has_recorder_log(tree: Tree, directory: str) -> bool:
    """Whether a directory holds a recorder's log, by name: readers of its exports leave them out."""
    return any(_SEGMENT.match(name) for name in tree.directories.get(directory, {}))


def _session(tree: Tree, directory: str) -> _Session | None:
    names = sorted(name for name in tree.directories[directory] if _SEGMENT.match(name))
    segments = tuple(tree.directories[directory][name] for name in names)
    # The oldest segment may have been removed since the directory was listed.
    heads = (read_log_head(file.path) for file in reversed(segments))
    head = next((head for head in heads if head is not None), None)
    return _Session(directory, head, segments) if head else None


def read_log_head(path: Path) -> LogHead | None:
    """None if the file was removed or is not a recorder's log."""
    try:
        with path.open("rb") as file:
            head = msgspec.json.decode(file.readline(_LONGEST_HEAD), type=LogHead)
    except (OSError, msgspec.DecodeError):
        return None
    return head if head.schema == SCHEMA and head.rank >= 0 else None


def _job(session: _Session) -> tuple[str, int]:
    return session.head.job, session.head.world_size


def _left_out(others: list[_Session]) -> tuple[Sentence, ...]:
    jobs: dict[tuple[str, int], list[_Session]] = {}
    for session in others:
        jobs.setdefault(_job(session), []).append(session)
    return tuple(
        message("other_job", job=job or message("unnamed"), n=world, name=sessions[0].directory)
        for (job, world), sessions in jobs.items()
    )
