"""List the files of a local source once, with limits on depth and number, without following symbolic link loops."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from paceline.core.errors import UsageError
from paceline.core.message import Sentence, message, said_at

MAX_DEPTH = 32
MAX_FILES = 5_000_000


@dataclass(frozen=True, order=True)
class File:
    """One file of a source; `relative` uses "/" and is what users see."""

    relative: str
    path: Path
    size: int
    mtime_ns: int

    @property
    def name(self) -> str:
        return self.relative.rpartition("/")[2]

    @property
    def directory(self) -> str:
        return self.relative.rpartition("/")[0]


@dataclass(frozen=True)
class Tree:
    """Every file below a root, sorted by name; a single file is a tree of one."""

    root: Path
    files: tuple[File, ...]
    unreadable: tuple[Sentence, ...] = ()
    """Paths that could not be read, each with the reason."""

    @cached_property
    def directories(self) -> dict[str, dict[str, File]]:
        """relative directory → file name → file; the root is ""."""
        result: dict[str, dict[str, File]] = defaultdict(dict)
        for file in self.files:
            result[file.directory][file.name] = file
        return dict(result)

    @cached_property
    def _directory_names(self) -> list[str]:
        return sorted(self.directories)

    def directories_starting(self, prefix: str) -> Iterator[str]:
        """Relative directories that start with a prefix; by binary search, because it is called for every rank."""
        names = self._directory_names
        for name in islice(names, bisect_left(names, prefix), None):
            if not name.startswith(prefix):
                return
            yield name

    def below(self, directory: str) -> Iterator[File]:
        """Files in a directory and all its subdirectories."""
        prefix = directory + "/" if directory else ""
        return (file for file in self.files if file.relative.startswith(prefix))


def walk(root: Path) -> Tree:
    """List a directory (or a single file) without following symbolic link loops."""
    if not root.exists():
        raise UsageError(f"{root}: no such file or directory", hint="pass the directory that holds the profiles")
    if root.is_file():
        return Tree(root.parent, (_file(root, root.name),))
    if not root.is_dir():
        raise UsageError(f"{root}: neither a file nor a directory", hint="pass the directory that holds the profiles")
    files: list[File] = []
    unreadable: list[Sentence] = []
    _scan(root, "", files, unreadable, seen=set(), depth=0)
    return Tree(root, tuple(sorted(files)), tuple(unreadable))


def parent_of(relative: str) -> str:
    """The directory above a relative directory; "" stays ""."""
    return relative.rpartition("/")[0]


def _file(path: Path, relative: str) -> File:
    stat = path.stat()
    return File(relative, path, stat.st_size, stat.st_mtime_ns)


def _scan(
    directory: Path,
    prefix: str,
    files: list[File],
    unreadable: list[Sentence],
    *,
    seen: set[tuple[int, int]],
    depth: int,
) -> None:
    stat = directory.stat()
    identity = (stat.st_dev, stat.st_ino)
    if identity in seen or depth > MAX_DEPTH:
        return
    seen.add(identity)
    with os.scandir(directory) as entries:
        for entry in entries:
            relative = prefix + entry.name
            try:
                if entry.is_dir():
                    _scan(Path(entry.path), relative + "/", files, unreadable, seen=seen, depth=depth + 1)
                elif entry.is_file():
                    info = entry.stat()
                    files.append(File(relative, Path(entry.path), info.st_size, info.st_mtime_ns))
            except OSError as error:
                # A link loop or a directory without permission must not hide the rest of the cluster.
                unreadable.append(said_at(relative, message("cannot_read", error=error.strerror or error)))
    if len(files) > MAX_FILES:
        raise UsageError(
            f"{directory}: more than {MAX_FILES:,} files below this source", hint="pass a single run directory"
        )
