"""Calls to this machine's file systems, and what their errors mean for a transfer."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paceline.storage.store import Data, DeniedError, FullError, Item, MissingError, StorageError, TransientError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_TAKEN = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST})
"""A bucket may hold both "a" and "a/b"."""


def item_of(key: str, info: os.stat_result) -> Item:
    return Item(key, info.st_size, f"{info.st_mtime_ns:x}.{info.st_ino:x}")


def write_new(path: str, data: Data, *, sync: bool) -> os.stat_result:
    """A whole file, with the directories above it."""
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


def reserve(file: int, size: int) -> None:
    """Find out now, not after an hour, that the disk is too small; file systems that cannot reserve just grow."""
    os.ftruncate(file, size)
    try:
        if size:
            os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise


def discard(partial: str) -> None:
    """What is half written goes, if it can."""
    with suppress(OSError):
        os.unlink(partial)  # noqa: PTH108


@contextmanager
def explained(path: Path | str) -> Iterator[None]:
    """OSError as what it means for a transfer."""
    try:
        yield
    except OSError as error:
        raise meaning(path, error) from error


def meaning(path: Path | str, error: OSError) -> StorageError:
    if isinstance(error, FileNotFoundError):
        return MissingError(f"{path}: is gone")
    if isinstance(error, PermissionError):
        return DeniedError(f"{path}: permission denied", hint="check who owns it")
    if error.errno in _FULL:
        return FullError(f"{path}: no space left on the device", hint="free some; run again to go on")
    if error.errno in _TAKEN:
        return StorageError(
            f"{path}: {error.strerror}", hint="the name is a file's and a directory's: here it can be only one"
        )
    if error.errno in (errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT):
        return TransientError(f"{path}: {error.strerror}")
    return StorageError(f"{path}: {error.strerror or error}")
