"""Directories for temporary files, which the next process removes if this one is killed; and directories of one user."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paceline.core.errors import PacelineError

_PREFIX = "paceline-scratch-"
_YOUNG_SECONDS = 60.0
"""A directory this young may not have its lock yet."""


@contextmanager
def scratch_directory(parent: Path | None = None, *, before: str = "") -> Iterator[Path]:
    """A directory below `parent` (TMPDIR) for the time of a block. It is locked, not only named: a process that dies, on
    whatever host, loses its lock, and the next process removes the directory."""
    parent = parent or Path(tempfile.gettempdir())
    prefix = f"{before}{_PREFIX}"
    remove_abandoned(parent, prefix)
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    lock = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: the directory may stay after a kill
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
    finally:
        os.close(lock)
        shutil.rmtree(path, ignore_errors=True)


def remove_abandoned(parent: Path, prefix: str = _PREFIX) -> int:
    """Remove what killed processes left below `parent`; returns how many directories."""
    name = re.compile(re.escape(prefix) + r"[a-z0-9_]{8}")
    try:
        found = [Path(entry.path) for entry in os.scandir(parent) if name.fullmatch(entry.name)]
    except OSError:
        return 0
    return sum(map(_removed_if_abandoned, found))


def _removed_if_abandoned(path: Path) -> bool:
    try:
        info = path.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or time.time() - info.st_mtime < _YOUNG_SECONDS:
            return False
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(lock)


def private_directory(path: Path) -> Path:
    """Create a directory, and those above it that are missing, for this user only; refuse one that others could have
    prepared or may change."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise PacelineError(
            f"{path}: not a directory that only you can write to",
            hint="remove it, or set TMPDIR to a directory that you own",
        )
    return path


def runtime_directory() -> Path:
    """Where the processes of one user on one host meet: $XDG_RUNTIME_DIR, or a directory in TMPDIR."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir() and os.access(given, os.W_OK):
        return private_directory(Path(given) / "paceline")
    return private_directory(Path(tempfile.gettempdir()) / f"paceline-{os.getuid()}")
