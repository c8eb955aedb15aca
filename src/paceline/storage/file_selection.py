"""Which files matter to every transfer, by name alone: unfinished files, and the files that complete a checkpoint.

Which files readers open is declared by the formats (formats/file_selection.py); transfers are given it as a filter.
"""

from __future__ import annotations

from typing import Callable

from paceline.storage.partial_files import PARTIAL_SUFFIX

FileFilter = Callable[[str], bool]

_UNFINISHED = (".tmp", PARTIAL_SUFFIX, ".upload_record", ".download_record")
"""MindSpore writes <name>.tmp and renames it; the OBS SDK keeps its records next to the data."""

MARKERS = frozenset({"meta.json", "latest_checkpointed_iteration.txt", "paceline.json"})
"""Written last by the writer of a checkpoint or an export: when one exists, all other files exist too."""


def is_unfinished(key: str) -> bool:
    """Whether another program is still writing it; such files are never transferred."""
    return key.endswith(_UNFINISHED)


def is_marker(key: str) -> bool:
    return key.rpartition("/")[2] in MARKERS


def everything(key: str) -> bool:
    return True
