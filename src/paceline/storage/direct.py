"""Writing past the page cache: what is written is on its way to the disk, and nobody's cached files are pushed out.

Syncing a gigabyte that went through the cache takes several times as long as writing it directly, and costs the CPU of
copying it there. Not every file system can (memory, some network ones): the caller then writes as usual.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
from pathlib import Path

from paceline.storage.store import Data

_BLOCK = 1 << 20
_ALIGNED = 4096
"""Positions, lengths and memory have to be multiples of this."""
_O_DIRECT = getattr(os, "O_DIRECT", 0)
"""Linux has it."""
_CANNOT = frozenset({errno.EINVAL, errno.EOPNOTSUPP})


_KEPT = 16 << 20
"""Parts of enormous files are larger: sixteen threads must not keep as much for ever."""
_MINE = threading.local()


def aligned(length: int) -> memoryview:
    """Memory a file can be written from directly: a thread's own and used again and again, because new memory costs
    as much as what is read into it. What is in it lasts until the thread asks for the next."""
    if length > _KEPT:
        return memoryview(mmap.mmap(-1, length))
    block: memoryview | None = getattr(_MINE, "block", None)
    if block is None or len(block) < length:
        _MINE.block = block = memoryview(mmap.mmap(-1, max(length, _BLOCK)))
    return block[:length]


class DirectFile:
    """A second way into a file that is open already."""

    def __init__(self, path: Path) -> None:
        self._file = _opened(path)

    def write(self, data: Data, start: int) -> int:
        """Write what can be written so, from the beginning; returns how many bytes that were."""
        if start % _ALIGNED:
            return 0
        view, done = memoryview(data), 0
        as_it_is = _is_aligned(view)
        most = len(view) if as_it_is else _BLOCK
        while self._file >= 0 and (length := min(most, len(view) - done) // _ALIGNED * _ALIGNED):
            piece = view[done : done + length]
            try:
                written = os.pwrite(self._file, piece if as_it_is else _copied(piece), start + done)
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                break
            done += written
            if written < length:
                break
        return done

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _is_aligned(view: memoryview) -> bool:
    return not view.readonly and len(view) > 0 and ctypes.addressof(ctypes.c_char.from_buffer(view)) % _ALIGNED == 0


def _copied(piece: memoryview) -> memoryview:
    block = aligned(len(piece))
    block[:] = piece
    return block


def _opened(path: Path) -> int:
    if not _O_DIRECT:
        return -1
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | _O_DIRECT)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return -1
