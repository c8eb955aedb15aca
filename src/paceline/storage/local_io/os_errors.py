"""Translate errors of the operating system (OSError) into storage errors."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.storage.store_errors import DeniedError, FullError, MissingError, StorageError, TransientError

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FILE_OR_DIRECTORY = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST})
"""A bucket may hold both "a" and "a/b"."""


@contextmanager
def translate_os_errors(path: Path | str) -> Iterator[None]:
    """Raise a StorageError in place of an OSError."""
    try:
        yield
    except OSError as error:
        raise to_storage_error(path, error) from error


def to_storage_error(path: Path | str, error: OSError) -> StorageError:
    if isinstance(error, FileNotFoundError):
        return MissingError(f"{path}: not found")
    if isinstance(error, PermissionError):
        return DeniedError(f"{path}: permission denied", hint="check its owner and mode")
    if error.errno in _DISK_FULL:
        return FullError(f"{path}: no space left on the device", hint="free some space, then run again to resume")
    if error.errno in _FILE_OR_DIRECTORY:
        return StorageError(
            f"{path}: {error.strerror}",
            hint="the source has a file and a directory of this name: only one can exist here",
        )
    if error.errno in (errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT):
        return TransientError(f"{path}: {error.strerror}")
    return StorageError(f"{path}: {error.strerror or error}")
