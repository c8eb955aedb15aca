"""Which recording supplies which table of a rank, if a source holds several recordings of it.

Recordings of one rank and format with the same job are cycles of one recording: all are used. Otherwise the newest is
used and a warning names the others. Of several formats the most preferred one supplies a table, and the others only
what it lacks; ranks and groups are taken from all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.formats.base import RankRecording
from paceline.run.read_warning import ReadWarning

IDENTITY_TABLES = frozenset({"ranks", "groups"})


@dataclass(frozen=True)
class SelectedRecording:
    recording: RankRecording
    tables: frozenset[str]
    """Tables it supplies."""


def select_recordings(found: Iterable[RankRecording]) -> tuple[list[SelectedRecording], list[ReadWarning]]:
    """The recordings that are used, in order of preference."""
    by_rank: dict[int | None, list[RankRecording]] = defaultdict(list)
    warnings: list[ReadWarning] = []
    for recording in found:
        by_rank[recording.rank].append(recording)
        warnings += [ReadWarning(recording.rank, None, note) for note in recording.notes]
        warnings += [ReadWarning(each.rank, each.file, each.message, each.line) for each in recording.earlier_warnings]
    of_whole_cluster = by_rank.pop(None, [])
    selected: list[SelectedRecording] = []
    for rank, candidates in sorted(by_rank.items(), key=lambda item: item[0] or 0):
        supplied: set[str] = set()
        for cycles in _newest_by_format(rank, candidates, warnings):
            tables = frozenset().union(*(recording.tables for recording in cycles)) - supplied | IDENTITY_TABLES
            selected += [SelectedRecording(recording, recording.tables & tables) for recording in cycles]
            supplied |= tables
    return selected + _select_of_whole_cluster(of_whole_cluster, selected), warnings


def _select_of_whole_cluster(
    recordings: list[RankRecording], ranked: list[SelectedRecording]
) -> list[SelectedRecording]:
    """Files with many ranks supply only tables that no rank's own recording does: they are often made from those."""
    supplied = frozenset().union(*(entry.tables for entry in ranked)) - IDENTITY_TABLES
    selected = []
    for recording in recordings:
        tables = recording.tables - IDENTITY_TABLES
        if tables and tables <= supplied:
            continue
        selected.append(SelectedRecording(recording, recording.tables - supplied))
        supplied |= tables
    return selected


def _newest_by_format(
    rank: int | None, candidates: list[RankRecording], warnings: list[ReadWarning]
) -> Iterable[list[RankRecording]]:
    """For each format in order of preference: the newest recording, with all its cycles."""
    formats: dict[str, list[RankRecording]] = defaultdict(list)
    for recording in candidates:
        formats[recording.format].append(recording)
    for same_format in formats.values():
        newest = max(same_format, key=lambda recording: (recording.recorded, recording.root))
        cycles = [each for each in same_format if each is newest or (each.job and each.job == newest.job)]
        if ignored := [each for each in same_format if each not in cycles]:
            others = ", ".join(each.root or "." for each in ignored[:3]) + (" …" if len(ignored) > 3 else "")
            message = f"several recordings of this rank: using the newest, ignoring {others}"
            warnings.append(ReadWarning(rank, newest.root, message))
        yield cycles
