"""Find files that readers recognise but do not use, because other files of the same rank hold the same data.

A framework's profile contains its own results and, in PROF_*, the msprof results they were made from.
"""

from __future__ import annotations

from pathlib import Path
from typing import FrozenSet, Optional, Tuple

from paceline.formats.registry import find_recordings
from paceline.run.source_selection import select_recordings
from paceline.storage.file_tree import Tree, walk

_SectionsRead = Tuple[FrozenSet[Tuple[str, Optional[int], str, FrozenSet[str], Tuple[str, ...]]], Tuple[str, ...]]


def redundant_files(source: Path) -> frozenset[str]:
    """Relative names of files that can be left out: without them the same sections are read, with the same warnings."""
    tree = walk(source)
    parts = list(find_recordings(tree))
    known = {file.relative for part in parts for section in part.sections for file in section.files}
    before = _sections_read(tree)
    surplus = frozenset(known - {name for section in before[0] for name in section[4]})
    if not surplus:
        return surplus
    rest = Tree(tree.root, tuple(file for file in tree.files if file.relative not in surplus), tree.unreadable)
    # Some files matter by their presence alone: readers identify others by them.
    return surplus if _sections_read(rest) == before else frozenset()


def _sections_read(tree: Tree) -> _SectionsRead:
    chosen, warnings = select_recordings(list(find_recordings(tree)))
    sections = frozenset(
        (
            entry.recording.format,
            entry.recording.rank,
            section.name,
            section.tables & entry.tables,
            tuple(file.relative for file in section.files),
        )
        for entry in chosen
        for section in entry.recording.sections
        if section.tables & entry.tables
    )
    return sections, tuple(map(str, warnings))
