"""Write local files: whole files, parts at an offset, preallocation, removal of partial files."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from paceline.storage.stored_file import Data, StoredFile


def stored_file_of(key: str, info: os.stat_result) -> StoredFile:
    return StoredFile(key, info.st_size, f"{info.st_mtime_ns:x}.{info.st_ino:x}")


def write_new_file(path: str, data: Data, *, sync: bool) -> os.stat_result:
    """Write a complete file, and create its directories."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        file = os.open(path, flags, 0o666)
    try:
        write_all(file, data, 0)
        if sync:
            os.fsync(file)
        return os.fstat(file)
    finally:
        os.close(file)


def write_all(file: int, data: Data, start: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, start)
        view, start = view[written:], start + written


def preallocate(file: int, size: int) -> None:
    """Reserve disk space, so that a full disk is noticed now and not after an hour; skipped where not supported."""
    os.ftruncate(file, size)
    try:
        if size:
            os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise


def remove_partial(partial: str) -> None:
    """Remove a partially written file; errors are ignored, because another error is being reported."""
    with suppress(OSError):
        os.unlink(partial)  # noqa: PTH108
