"""Archives and compressed files of a source, seen as the files they contain."""

from __future__ import annotations

from dataclasses import replace

from paceline.core.errors import FormatError
from paceline.core.message import said_at
from paceline.storage.archive_names import Needed, inner_name, is_archive
from paceline.storage.file_tree import File, Tree


def with_compressed_files(tree: Tree, needed: Needed) -> Tree:
    """The tree with the content of single compressed files (trace.json.zst) that no reader reads as they are."""
    return _with_unpacked(tree, [file for file in tree.files if _is_wanted_inside(file, needed)], needed)


def with_archives(tree: Tree, needed: Needed) -> Tree:
    """The tree with what its archives contain."""
    return _with_unpacked(tree, [file for file in tree.files if is_archive(file.name)], needed)


def _is_wanted_inside(file: File, needed: Needed) -> bool:
    inner = inner_name(file.relative)
    return inner is not None and not is_archive(file.name) and not needed(file.relative) and needed(inner)


def _with_unpacked(tree: Tree, packed: list[File], needed: Needed) -> Tree:
    if not packed:
        return tree
    # Imported here: most sources have no archives, and the modules of all compressions take longer than a small trace.
    from paceline.storage.unpack import unpacked_files

    files, unreadable = list(tree.files), list(tree.unreadable)
    for file in packed:
        try:
            files += unpacked_files(file, needed)
        except FormatError as error:
            unreadable.append(said_at(file.relative, error.said))
    return replace(tree, files=tuple(sorted(files)), unreadable=tuple(unreadable))
