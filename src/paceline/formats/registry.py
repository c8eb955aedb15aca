"""All formats, ours and those of other installed packages, and what they find in a tree."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from paceline.core.errors import PacelineError
from paceline.core.plugins import load_entry_point, plugins
from paceline.formats.base import RankRecording, Reader
from paceline.formats.format import Format
from paceline.storage.file_tree import Tree

GROUP = "paceline.readers"


@cache
def formats() -> tuple[Format, ...]:
    """Most preferred first."""
    found = []
    for point in plugins(GROUP).values():
        format = load_entry_point(point)
        if not isinstance(format, Format):
            raise PacelineError(
                f"the plug-in '{point.name}' of {point.distribution} is no Format ({point.value})",
                hint="see docs/add-a-reader.md",
            )
        found.append(format)
    return tuple(sorted(found, key=lambda format: (-format.preference, format.name)))


def readers() -> list[Reader]:
    return [format.load_reader() for format in formats()]


def find_recordings(tree: Tree) -> Iterator[RankRecording]:
    """What every format recognises in the tree, most preferred first.

    A reader is imported only if the tree has files of its format: importing all of them takes longer than reading a
    small trace.
    """
    names = frozenset().union(*tree.directories.values())
    for format in formats():
        if format.files.match_any(tree.directories, names):
            yield from format.load_reader().find(tree)
