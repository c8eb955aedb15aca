"""Logs of Paceline's own light recorder (paceline.profiling.Recorder): one directory per rank and session.

A log is read up to the last whole line, so a rank that still runs or was killed is read too. Recordings of several jobs
in one place are not mixed: those of the newest job are taken, the others named. What the recorder exports beside its
log (ASCEND_PROFILER_OUTPUT) says the same and is left to those who have nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from paceline.formats.light_tables import TABLES, read_log
from paceline.formats.reader import Part, Section
from paceline.storage.tree import File, Tree

SCHEMA = "paceline.light/1"
_SEGMENT = re.compile(r"steps-\d{6,}\.jsonl$")
_LONGEST_HEAD = 16 << 20


class Head(msgspec.Struct):
    """The first line of a segment."""

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
    head: Head
    segments: tuple[File, ...]


@dataclass(frozen=True)
class LightReader:
    name: str = "light"

    def find(self, tree: Tree) -> Iterator[Part]:
        sessions = [found for directory in sorted(tree.directories) if (found := _session(tree, directory))]
        if not sessions:
            return
        newest = max(sessions, key=lambda session: session.head.started)
        chosen = [session for session in sessions if _job(session) == _job(newest)]
        notes = _left_out([session for session in sessions if _job(session) != _job(newest)])
        for session in chosen:
            yield self._part(session, notes if session is newest else ())

    def _part(self, session: _Session, notes: tuple[str, ...]) -> Part:
        head = session.head
        read = partial(read_log, tuple(file.path for file in session.segments), head.host, head.device)
        section = Section("log", TABLES, session.segments, read)
        recorded = f"{head.started:020}"
        return Part(self.name, head.rank, session.directory, (section,), recorded=recorded, notes=notes)


READER = LightReader()


def is_light(tree: Tree, directory: str) -> bool:
    """Whether a directory holds a light recorder's log, by name: for readers that would take its exports."""
    return any(_SEGMENT.match(name) for name in tree.directories.get(directory, {}))


def _session(tree: Tree, directory: str) -> _Session | None:
    names = sorted(name for name in tree.directories[directory] if _SEGMENT.match(name))
    segments = tuple(tree.directories[directory][name] for name in names)
    # The oldest may have been removed since the directory was listed.
    heads = (read_head(file.path) for file in reversed(segments))
    head = next((head for head in heads if head is not None), None)
    return _Session(directory, head, segments) if head else None


def read_head(path: Path) -> Head | None:
    """None: no such file any more, or not one of ours."""
    try:
        with path.open("rb") as file:
            head = msgspec.json.decode(file.readline(_LONGEST_HEAD), type=Head)
    except (OSError, msgspec.DecodeError):
        return None
    return head if head.schema == SCHEMA and head.rank >= 0 else None


def _job(session: _Session) -> tuple[str, int]:
    return session.head.job, session.head.world_size


def _left_out(others: list[_Session]) -> tuple[str, ...]:
    jobs: dict[tuple[str, int], list[_Session]] = {}
    for session in others:
        jobs.setdefault(_job(session), []).append(session)
    return tuple(
        f"there are recordings of another job here ({job or 'unnamed'}, {world} ranks, e.g. {sessions[0].directory}); "
        "only the newest job is read"
        for (job, world), sessions in jobs.items()
    )
