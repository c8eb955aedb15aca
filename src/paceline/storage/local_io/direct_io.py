"""Direct I/O: write large files past the page cache (O_DIRECT).

Syncing a gigabyte that went through the cache takes several times as long as writing it directly, costs the CPU time of
the copy, and evicts files that other processes use. Some file systems (in memory, some network ones) do not support it:
the caller then writes normally.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
from pathlib import Path

from paceline.storage.stored_file import Data

_BLOCK = 1 << 20
_ALIGNMENT = 4096
"""Offsets, lengths and buffers must be multiples of this."""
_O_DIRECT = getattr(os, "O_DIRECT", 0)
"""Only on Linux."""
_UNSUPPORTED = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
_MAX_KEPT = 16 << 20
"""Parts of very large files are larger: buffers of that size are not kept for each of sixteen threads."""
_THREAD = threading.local()


def aligned_buffer(length: int) -> memoryview:
    """A buffer that direct I/O accepts. It belongs to the thread and is reused, because allocating new memory costs as
    much as reading into it: its content is valid until the thread asks for the next one."""
    if length > _MAX_KEPT:
        return memoryview(mmap.mmap(-1, length))
    block: memoryview | None = getattr(_THREAD, "block", None)
    if block is None or len(block) < length:
        _THREAD.block = block = memoryview(mmap.mmap(-1, max(length, _BLOCK)))
    return block[:length]


class DirectFile:
    """A second file descriptor, with O_DIRECT, of a file that is already open."""

    def __init__(self, path: Path) -> None:
        self._file = _open_direct(path)

    def write(self, data: Data, start: int) -> int:
        """Write as much as alignment allows, from the beginning; returns the number of bytes written."""
        if start % _ALIGNMENT:
            return 0
        view, done = memoryview(data), 0
        is_aligned = _is_aligned(view)
        most = len(view) if is_aligned else _BLOCK
        while self._file >= 0 and (length := min(most, len(view) - done) // _ALIGNMENT * _ALIGNMENT):
            piece = view[done : done + length]
            try:
                written = os.pwrite(self._file, piece if is_aligned else _aligned_copy(piece), start + done)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
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
    return not view.readonly and len(view) > 0 and ctypes.addressof(ctypes.c_char.from_buffer(view)) % _ALIGNMENT == 0


def _aligned_copy(piece: memoryview) -> memoryview:
    block = aligned_buffer(len(piece))
    block[:] = piece
    return block


def _open_direct(path: Path) -> int:
    if not _O_DIRECT:
        return -1
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | _O_DIRECT)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        return -1
