"""What the cache holds, and how it is emptied: everything in it can be made again."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paceline.core.scratch_directory import remove_abandoned
from paceline.storage.cache_dir import cache_root

KINDS = {
    "stores": "store",
    "remote": "download",
    "samples": "sample",
    "inputs": "input",
    "transfers": "transfer",
    **{
        "unpacked": "archive",
        "nsys": "export",
    },
}
"""Subdirectories of the cache; what lies beside them are stores of local sources."""
_LOCK = "lock"
_OURS = re.compile(r".*-[0-9a-f]{16}(\.jsonl)?")
"""Names as cache_dir.cache_name makes them: nothing else is listed or removed, wherever $PACELINE_CACHE points."""


@dataclass(frozen=True)
class CacheEntry:
    kind: str
    path: Path
    bytes: int
    last_used: float
    """Seconds since 1970."""


def cache_entries() -> Iterator[CacheEntry]:
    """Stores, downloads, samples, inputs and journals of transfers, one by one."""
    root = cache_root()
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if path.name in KINDS and path.is_dir():
            yield from (_entry(KINDS[path.name], each) for each in sorted(path.iterdir()) if _OURS.fullmatch(each.name))
        elif _OURS.fullmatch(path.name):
            yield _entry("store", path)


@dataclass(frozen=True)
class CacheCleanup:
    removed: tuple[CacheEntry, ...]
    in_use: tuple[CacheEntry, ...]
    abandoned: int
    """Temporary directories of killed processes."""


def clean_cache(older_than_days: float = 0.0) -> CacheCleanup:
    """Remove what was not used for so many days, except what another process holds."""
    limit = time.time() - older_than_days * 86400
    removed: list[CacheEntry] = []
    in_use: list[CacheEntry] = []
    for entry in cache_entries():
        if entry.last_used > limit:
            continue
        with _held(entry.path) as free:
            if free:
                shutil.rmtree(entry.path) if entry.path.is_dir() else entry.path.unlink(missing_ok=True)
            (removed if free else in_use).append(entry)
    return CacheCleanup(tuple(removed), tuple(in_use), remove_abandoned(Path(tempfile.gettempdir())))


def _entry(kind: str, path: Path) -> CacheEntry:
    infos = [path.lstat()]
    for directory, _, names in os.walk(path):
        infos += [(Path(directory) / name).lstat() for name in names]
    return CacheEntry(
        kind, path, sum(info.st_size for info in infos[1:] or infos), max(info.st_mtime for info in infos)
    )


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Whether no other process holds the lock of a store (a file in it) or of a journal (itself); held during the block."""
    lock = path / _LOCK if path.is_dir() else path
    if not lock.exists():
        yield True
        return
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
