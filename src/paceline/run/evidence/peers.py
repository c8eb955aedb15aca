"""Files of each rank against those of its peers: what is missing, whose number was guessed, what was copied or mixed up."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from paceline.core.message import message, said_at
from paceline.formats.base import RankRecording, RecordingSection
from paceline.run.evidence.file_ends import same_content
from paceline.run.evidence.gap import CORE_TABLES, EvidenceGap, is_core
from paceline.storage.file_tree import File

_TIMED = frozenset({"steps", "kernels", "collectives", "transfers", "events"})
"""Tables whose files hold measured times: two ranks never record the same."""
_DESCRIPTIONS = ("framework_raw_",)
"""Files beside them that describe the graph and hold no times: equal on ranks of one stage."""
_DISTINCT_BYTES = 256
"""Shorter files may agree by chance."""
MOST_AGREE = 2 / 3
"""A count is expected of all ranks if this share of them has it; stages may differ."""


@dataclass(frozen=True)
class RankFiles:
    """What the selected recordings of one rank in one format consist of."""

    rank: int
    format: str
    sections: tuple[RecordingSection, ...]
    contents: frozenset[str] = frozenset()
    """What their main files hold, see RankRecording.contents."""

    def classes(self) -> Counter[str]:
        """Names of the files, numbers left out, with how many of each there are, and what they hold."""
        files = {file for section in self.sections for file in section.files}
        return Counter(_file_class(file.name) for file in files) + Counter(self.contents)

    def classes_by_section(self) -> dict[str, set[str]]:
        """The same by section, numbers left out of its name too, without how many."""
        found: dict[str, set[str]] = {"": set(self.contents)}
        for section in self.sections:
            found.setdefault(_file_class(section.name), set())
            found[_file_class(section.name)] |= {_file_class(file.name) for file in section.files}
        return found


def files_of_ranks(recordings: Iterable[RankRecording]) -> list[RankFiles]:
    """By format and rank; several cycles of one recording count together."""
    found: dict[tuple[str, int], list[RankRecording]] = defaultdict(list)
    for recording in recordings:
        if recording.rank is not None:
            found[recording.format, recording.rank].append(recording)
    return [
        RankFiles(rank, name, tuple(section for each in cycles for section in each.sections), _contents(cycles))
        for (name, rank), cycles in sorted(found.items())
    ]


def _contents(cycles: Iterable[RankRecording]) -> frozenset[str]:
    return frozenset().union(*(each.contents for each in cycles))


def guessed_identities(recordings: Sequence[RankRecording]) -> list[EvidenceGap]:
    """Rank numbers that no file records. A single recording has no other to be confused with."""
    ranks = {recording.rank for recording in recordings if recording.rank is not None}
    guessed = sorted({each.rank for each in recordings if each.rank is not None and each.rank_assumed})
    if len(ranks) < 2 or not guessed:
        return []
    return [EvidenceGap("identity", tuple(guessed), message("assumed"))]


def conflicting_identities(recordings: Iterable[RankRecording]) -> list[EvidenceGap]:
    """Ranks that a name or a file beside the recording contradicts."""
    return [
        EvidenceGap("conflict", (each.rank,), said_at(each.root or ".", what))
        for each in recordings
        if each.rank is not None
        for what in each.conflicts
    ]


def missing_files(ranks: Sequence[RankFiles]) -> list[EvidenceGap]:
    """Files that most peers have and a rank lacks; of two ranks, what one of them lacks."""
    return [
        gap
        for peers in _by_format(ranks)
        for gap in (_missing_of(peers) if len(peers) > 2 else _missing_of_two(*peers))
    ]


def _missing_of_two(*pair: RankFiles) -> Iterator[EvidenceGap]:
    """Sections, and files of a section if one rank has all that the other has: names of files may hold the host's."""
    held = [each.classes_by_section() for each in pair]
    for mine, other, peer, rank in zip(held, reversed(held), reversed(pair), (each.rank for each in pair), strict=True):
        named = {_file_class(section.name): section for section in peer.sections}
        lacking = {named[key].name: named[key].tables for key in other.keys() - mine.keys()}
        for key in other.keys() & mine.keys():
            if not key or mine[key] < other[key]:
                tables = named[key].tables if key else CORE_TABLES
                lacking |= dict.fromkeys(other[key] - mine[key], tables)
        for name in sorted(lacking):
            core = is_core(lacking[name])
            yield EvidenceGap("missing", (rank,), message("other_has", name=name), core=core)


def _missing_of(ranks: Sequence[RankFiles]) -> Iterator[EvidenceGap]:
    held = {each.rank: each.classes() for each in ranks}
    tables: dict[str, set[str]] = defaultdict(set)
    for each in ranks:
        for section in each.sections:
            for file in section.files:
                tables[_file_class(file.name)] |= section.tables
        tables |= {name: set(CORE_TABLES) for name in each.contents}
    for name in sorted(tables):
        counts = {rank: classes[name] for rank, classes in held.items()}
        common, agreeing = Counter(counts.values()).most_common(1)[0]
        present = sum(count > 0 for count in counts.values())
        if 2 * present > len(counts) and (lacking := tuple(sorted(r for r, count in counts.items() if not count))):
            said = message("others_have", name=name, n=present, all=len(counts))
            yield EvidenceGap("missing", lacking, said, core=is_core(frozenset(tables[name])))
        fewer = tuple(sorted(rank for rank, count in counts.items() if 0 < count < common))
        if fewer and agreeing >= MOST_AGREE * len(counts):
            said = message("fewer_files", name=name, n=common)
            yield EvidenceGap("missing", fewer, said, core=is_core(frozenset(tables[name])))


def copied_files(ranks: Sequence[RankFiles]) -> list[EvidenceGap]:
    """Files with measured times that hold the same bytes on several ranks: one is a copy of the other."""
    by_size: dict[tuple[str, int], dict[File, int]] = defaultdict(dict)
    for each in ranks:
        for section in each.sections:
            if section.tables & _TIMED:
                for file in section.files:
                    if file.size >= _DISTINCT_BYTES and not file.name.startswith(_DESCRIPTIONS):
                        by_size[_file_class(file.name), file.size][file] = each.rank
    gaps = []
    for owners in by_size.values():
        if len(set(owners.values())) < 2:
            continue
        for group in same_content(owners):
            held_by = tuple(sorted({owners[file] for file in group}))
            if len(held_by) > 1:
                first, second = sorted(file.relative for file in group)[:2]
                gaps.append(EvidenceGap("conflict", held_by, message("same_file", first=first, second=second)))
    return gaps


def _by_format(ranks: Sequence[RankFiles]) -> list[list[RankFiles]]:
    formats: dict[str, list[RankFiles]] = defaultdict(list)
    for each in ranks:
        formats[each.format].append(each)
    return [same_format for same_format in formats.values() if len(same_format) > 1]


def _file_class(name: str) -> str:
    """
    >>> _file_class("hccl_1_1_12.json")
    'hccl_#_#_#.json'
    >>> _file_class("node1_10000.1763208000000000000.pt.trace.json.gz")
    '#.pt.trace.json.gz'
    """
    if name.endswith((".pt.trace.json", ".pt.trace.json.gz")):
        return "#" + name[name.index(".pt.trace.json") :]
    return re.sub(r"\d+", "#", name)
