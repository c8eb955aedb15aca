"""What a local source holds: its files and the recordings in them, also inside archives.

Archives are opened only if nothing else in the source is a profile: a directory of a run may hold archives of data.
"""

from __future__ import annotations

from pathlib import Path

from paceline.core.errors import UsageError
from paceline.formats.base import RankRecording
from paceline.formats.file_selection import needed_for_diagnosis
from paceline.formats.registry import find_recordings
from paceline.run.source_selection import IDENTITY_TABLES
from paceline.storage.archive_names import is_archive
from paceline.storage.archives import with_archives, with_compressed_files
from paceline.storage.file_tree import Tree, walk


def open_tree(source: Path) -> tuple[Tree, list[RankRecording]]:
    """The files of a source and its recordings; none if it holds no profile."""
    tree = with_compressed_files(walk(source), needed_for_diagnosis)
    found = list(find_recordings(tree))
    if not has_profile(found) and any(is_archive(file.name) for file in tree.files):
        tree = with_archives(tree, needed_for_diagnosis)
        found = list(find_recordings(tree))
    return tree, found


def has_profile(recordings: list[RankRecording]) -> bool:
    return any(recording.tables - IDENTITY_TABLES for recording in recordings)


def no_profile_error(source: str, tree: Tree) -> UsageError:
    """What is there instead of a profile, and which tool reads it."""
    from paceline.formats.unread_files import describe_unread  # only errors need its patterns

    seen = [*describe_unread(tree.files), *tree.unreadable[:3]]
    message = f"{source}: no profile found in {len(tree.files):,} files"
    if seen:
        message += "; what is there:" + "".join(f"\n  - {line}" for line in seen)
    return UsageError(
        message, hint="see docs/formats.md for the formats; give the directory above the ranks' directories"
    )
