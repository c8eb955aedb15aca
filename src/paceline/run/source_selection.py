"""Which recording supplies which table of a rank, if a source holds several recordings of it.

Recordings of one rank and format with the same job are cycles of one recording: all are used. Otherwise one is used and
a warning names the others: the newest, if all ranks have equally many. If some ranks have more than others (a job that
was killed, or recorded again on a few ranks), ranks are only compared if they recorded the same steps: the window that
most ranks recorded is used, of several the newest. Of several formats the most preferred one supplies a table, and the
others only what it lacks; ranks and groups are taken from all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.core.message import message
from paceline.formats.base import RankRecording
from paceline.run.read_warning import GapKind, ReadWarning

TOGETHER = 2
"""Recordings of one rank follow each other; two that end within this (s) were made side by side."""
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
        warnings += [
            ReadWarning(each.rank, each.file, each.said or each.message, each.line, kind=each.kind, core=each.core)
            for each in recording.earlier_warnings
        ]
    of_whole_cluster = by_rank.pop(None, [])
    selected: list[SelectedRecording] = []
    windows = _common_windows(by_rank)
    for rank, candidates in sorted(by_rank.items(), key=lambda item: item[0] or 0):
        supplied: set[str] = set()
        for cycles in _one_by_format(rank, candidates, windows, warnings):
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


def _one_by_format(
    rank: int | None,
    candidates: list[RankRecording],
    windows: dict[str, dict[int | None, RankRecording]],
    warnings: list[ReadWarning],
) -> Iterable[list[RankRecording]]:
    """For each format in order of preference: one recording, with all its cycles."""
    for same_format in _by_format(candidates).values():
        newest = max(same_format, key=_age)
        used = windows.get(newest.format, {}).get(rank, newest)
        cycles = [each for each in same_format if each is used or (each.job and each.job == used.job)]
        if ignored := [each for each in same_format if each not in cycles]:
            others = ", ".join(each.root or "." for each in ignored[:3]) + (" …" if len(ignored) > 3 else "")
            said = message("several" if newest in cycles else "several_most", others=others)
            kind: GapKind = "conflict" if any(_is_another(each, used) for each in ignored) else "odd"
            if kind == "conflict":
                said = message("several_conflict", several=said)
            warnings.append(ReadWarning(rank, used.root, said, kind=kind))
        yield cycles


def _is_another(recording: RankRecording, used: RankRecording) -> bool:
    """Whether it was made together with the one that is used and is no copy of it: then one has a wrong rank."""
    together = abs(_when(recording) - _when(used)) <= TOGETHER and bool(_when(used))
    return together and _sizes(recording) != _sizes(used)


def _sizes(recording: RankRecording) -> list[int]:
    return sorted(file.size for section in recording.sections for file in section.files)


def _by_format(recordings: Iterable[RankRecording]) -> dict[str, list[RankRecording]]:
    formats: dict[str, list[RankRecording]] = defaultdict(list)
    for recording in recordings:
        formats[recording.format].append(recording)
    return formats


def _age(recording: RankRecording) -> tuple[str, str]:
    return recording.recorded, recording.root


# -- recordings of different ranks that were made together --------------------------------------------------------------


def _common_windows(
    by_rank: dict[int | None, list[RankRecording]],
) -> dict[str, dict[int | None, RankRecording]]:
    """Format → rank → its recording in the window that most ranks recorded, where not all ranks have equally many."""
    by_format: dict[str, list[list[RankRecording]]] = defaultdict(list)
    for candidates in by_rank.values():
        for name, same_format in _by_format(candidates).items():
            by_format[name].append(_last_cycles(same_format))
    return {
        name: {each.rank: each for each in _common_window(ranks)}
        for name, ranks in by_format.items()
        if len({len(recordings) for recordings in ranks}) > 1 and all(_when(each) for one in ranks for each in one)
    }


def _last_cycles(recordings: list[RankRecording]) -> list[RankRecording]:
    """Oldest first; of several cycles of one recording the last."""
    of_job = {each.job or each.root: each for each in sorted(recordings, key=_age)}
    return sorted(of_job.values(), key=_age)


def _common_window(ranks: list[list[RankRecording]]) -> list[RankRecording]:
    """Two recordings were made together if, of their ranks' recordings, they are nearest to each other in time."""
    most = max(ranks, key=len)
    windows: list[list[RankRecording]] = [[] for _ in most]
    for recordings in ranks:
        for recording in recordings:
            position = _nearest(recording, most)
            if recordings[_nearest(most[position], recordings)] is recording:
                windows[position].append(recording)
    return max(reversed(windows), key=len)


def _nearest(recording: RankRecording, others: list[RankRecording]) -> int:
    return min(range(len(others)), key=lambda number: abs(_when(others[number]) - _when(recording)))


def _when(recording: RankRecording) -> int:
    """Sortable number of its time; 0 if it is not known."""
    return int(recording.recorded) if recording.recorded.isdecimal() else 0
