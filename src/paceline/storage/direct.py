"""Writing past the page cache: what is written is on its way to the disk, and nobody's cached files are pushed out.

Syncing a gigabyte that went through the cache takes several times as long as writing it directly, and costs the CPU of
copying it there. Not every file system can (memory, some network ones): the caller then writes as usual.
"""

from __future__ import annotations

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


class DirectFile:
    """A second way into a file that is open already."""

    def __init__(self, path: Path) -> None:
        self._file = _opened(path)
        self._memory = threading.local()

    def write(self, data: Data, start: int) -> int:
        """Write what can be written so, from the beginning; returns how many bytes that were."""
        if start % _ALIGNED:
            return 0
        view, done = memoryview(data), 0
        while self._file >= 0 and (length := min(_BLOCK, len(view) - done) // _ALIGNED * _ALIGNED):
            block = self._block()
            block[:length] = view[done : done + length]
            try:
                written = os.pwrite(self._file, block[:length], start + done)
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

    def _block(self) -> memoryview:
        """Aligned memory, one block for each thread."""
        if not hasattr(self._memory, "block"):
            self._memory.block = memoryview(mmap.mmap(-1, _BLOCK))
        block: memoryview = self._memory.block
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
