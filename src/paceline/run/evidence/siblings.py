"""Files beside those that are read, by kind: which kind lacks one that the other kinds have, and which file is much smaller.

    profiler/step_trace_point_info_{0,1,3}.json     lacks (2)
    profiler/flops_{0,1,2,3}.txt                    members (0), (1), (2), (3), as most kinds
    profiler/minddata_aicpu_{0,1,2,3}.txt           of 900, 900, 430, 900 bytes: (2) seems to be cut off

A recording is copied as a whole: where a file that no reader reads is missing or cut, the others may be too.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from paceline.core.message import message
from paceline.formats.base import RankRecording
from paceline.run.evidence.file_ends import cut_off
from paceline.run.evidence.gap import EvidenceGap
from paceline.storage.file_tree import File, Tree

SMALLER = 0.75
"""A file with less than this share of the bytes of its siblings was cut off."""
SIZES_AGREE = 0.1
"""…if the siblings agree among themselves within this: files of the same program differ by the digits of their numbers."""
_MOST_NAMED = 3
Member = tuple[str, ...]
"""What tells a file from its siblings: the directory of its rank, or the numbers in its name."""


def sibling_gaps(tree: Tree, recordings: Sequence[RankRecording], *, local: bool) -> list[EvidenceGap]:
    """What the files of the recordings' directories lack, read or not."""
    kinds = _by_kind(_beside(tree, recordings), _own_directories(recordings))
    read = {file for each in recordings for section in each.sections for file in section.files}
    unread = [file for members in kinds.values() for file in members.values() if file not in read]
    smaller = [gap for file, gap in _smaller(kinds) if not (local and _has_its_end(file))]
    gaps = [*_missing(kinds), *smaller]
    return [*gaps, *_cut(unread)] if local else gaps


def _beside(tree: Tree, recordings: Iterable[RankRecording]) -> Iterator[File]:
    """Files in directories that a recording reads from, and in those above them up to its root."""
    directories = set()
    for recording in recordings:
        for section in recording.sections:
            for file in section.files:
                directory = file.directory
                while directory not in directories:
                    directories.add(directory)
                    if directory in ("", recording.root):
                        break
                    directory = directory.rpartition("/")[0]
    for directory in sorted(directories):
        yield from tree.directories.get(directory, {}).values()


def _own_directories(recordings: Iterable[RankRecording]) -> dict[str, int]:
    """Directories that belong to one rank only."""
    ranks: dict[str, set[int | None]] = defaultdict(set)
    for recording in recordings:
        ranks[recording.root].add(recording.rank)
    return {root: rank for root, (rank, *others) in ranks.items() if root and rank is not None and not others}


def _by_kind(files: Iterable[File], own: Mapping[str, int]) -> dict[str, dict[Member, File]]:
    kinds: dict[str, dict[Member, File]] = defaultdict(dict)
    for file in files:
        kind, member = _kind_of(file.relative, own)
        kinds[kind][member] = file
    return {kind: members if kind.startswith("*") else _distinct(members) for kind, members in kinds.items()}


def _distinct(members: dict[Member, File]) -> dict[Member, File]:
    """Without the numbers that most members share (the size of the cluster), and without members that do not share them.

    >>> from pathlib import Path
    >>> made = {each: File("", Path(), 0, 0) for each in [("1", "4", "0"), ("1", "4", "1"), ("8", "4", "2"), ("1", "4", "3")]}
    >>> list(_distinct(made))
    [('0',), ('1',), ('3',)]
    """
    columns = [Counter(column).most_common(1)[0] for column in zip(*members, strict=True)]
    shared = {at: value for at, (value, count) in enumerate(columns) if 2 * count > len(members) > 2}
    return {
        tuple(number for at, number in enumerate(member) if at not in shared): file
        for member, file in members.items()
        if all(member[at] == value for at, value in shared.items())
    }


def _kind_of(relative: str, own: Mapping[str, int]) -> tuple[str, Member]:
    """
    >>> _kind_of("node1_ascend_pt/ASCEND_PROFILER_OUTPUT/op_statistic.csv", {"node1_ascend_pt": 0})
    ('*/ASCEND_PROFILER_OUTPUT/op_statistic.csv', ('node1_ascend_pt',))
    >>> _kind_of("profiler/flops_12.txt", {})
    ('profiler/flops_#.txt', ('12',))
    """
    root = relative
    while (root := root.rpartition("/")[0]) and root not in own:
        pass
    if root:
        return "*" + re.sub(r"\d+", "#", relative[len(root) :]), (root,)
    return re.sub(r"\d+", "#", relative), tuple(re.findall(r"\d+", relative))


def _missing(kinds: Mapping[str, Mapping[Member, File]]) -> Iterator[EvidenceGap]:
    """Kinds with most, not all, of the members that most other kinds have."""
    by_shape: dict[tuple[bool, int], list[str]] = defaultdict(list)
    for kind, members in kinds.items():
        by_shape[kind.startswith("*"), len(next(iter(members)))].append(kind)
    for alike in by_shape.values():
        common, agreeing = Counter(frozenset(kinds[kind]) for kind in alike).most_common(1)[0]
        if agreeing < 2 or len(common) < 3:
            continue
        for kind in alike:
            lacking = sorted(common - kinds[kind].keys())
            if lacking and 2 * len(common & kinds[kind].keys()) > len(common):
                names = ", ".join("/".join(each) for each in lacking[:_MOST_NAMED])
                yield EvidenceGap("missing", (), message("siblings", kind=kind, names=names), core=False)


def _has_its_end(file: File) -> bool:
    """A JSON file that was cut off has no closing bracket; a rank may have recorded less than others."""
    try:
        return file.path.suffix.lower() in (".json", ".trace") and cut_off(file.path, file.size) is None
    except OSError:
        return False


def _smaller(kinds: Mapping[str, Mapping[Member, File]]) -> Iterator[tuple[File, EvidenceGap]]:
    for members in kinds.values():
        if len(members) < 3:
            continue
        typical = median(file.size for file in members.values())
        small = [file for file in members.values() if file.size < SMALLER * typical]
        others = [file for file in members.values() if file not in small]
        if (
            small
            and len(small) < len(others)
            and all(abs(each.size - typical) <= SIZES_AGREE * typical for each in others)
        ):
            for file in sorted(small)[:_MOST_NAMED]:
                said = message("cut_smaller", size=file.size, typical=int(typical))
                yield file, EvidenceGap("cut", (), said, file.relative, core=False)


def _cut(files: Iterable[File]) -> Iterator[EvidenceGap]:
    for file in files:
        try:
            is_cut = cut_off(file.path, file.size) is not None
        except OSError:
            continue  # no reader reads it
        if is_cut:
            yield EvidenceGap("cut", (), message("cut_copy"), file.relative, core=False)
