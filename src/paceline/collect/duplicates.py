"""Files that readers know but take nothing from, because other files of the same rank tell the same.

A framework's profile holds its own results and, in PROF_*, those of msprof they were made from.
"""

from __future__ import annotations

from pathlib import Path

from paceline.formats.detect import find_parts
from paceline.run.choice import choose
from paceline.storage.tree import Tree, walk

_Reading = tuple[frozenset[tuple[str, int | None, str, frozenset[str], tuple[str, ...]]], tuple[str, ...]]


def duplicates(source: Path) -> frozenset[str]:
    """Relative names of what may be left behind: without it the same sections are read, with the same warnings."""
    tree = walk(source)
    parts = list(find_parts(tree))
    known = {file.relative for part in parts for section in part.sections for file in section.files}
    before = _reading(tree)
    surplus = frozenset(known - {name for section in before[0] for name in section[4]})
    if not surplus:
        return surplus
    rest = Tree(tree.root, tuple(file for file in tree.files if file.relative not in surplus), tree.unreadable)
    # Some files tell readers what the others are, just by being there.
    return surplus if _reading(rest) == before else frozenset()


def _reading(tree: Tree) -> _Reading:
    chosen, warnings = choose(list(find_parts(tree)))
    sections = frozenset(
        (entry.part.format, entry.part.rank, section.name, section.tables & entry.tables,
         tuple(file.relative for file in section.files))
        for entry in chosen
        for section in entry.part.sections
        if section.tables & entry.tables
    )  # fmt: skip
    return sections, tuple(map(str, warnings))
