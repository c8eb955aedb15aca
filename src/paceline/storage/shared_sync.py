"""Many small files reach the disk with one call instead of one each.

Syncing 5,000 files of 20 KB one by one took longer than fetching them; `syncfs` takes as long for hundreds as for one.
It also writes what others left to be written on that file system, so it is for crowds of files, not for one.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable

_TELLS_ERRORS = (5, 8)
"""Linux before this forgets to say that something could not be written."""


class SharedSync:
    """Of one file system: whoever asks while a sync is under way waits for the next one, together with all others."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._changed = threading.Condition()
        self._running = False
        self._begun = self._ended = 0
        self._failed: tuple[int, OSError | None] = (0, None)

    def ticket(self) -> int:
        """For what is written by now: the first sync that begins after this."""
        with self._changed:
            return self._begun + 1

    def reach(self, ticket: int) -> None:
        """Returns when all that was written before the ticket was taken is on the disk."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended >= ticket or not self._running)
            if self._ended >= ticket:
                number, error = self._failed
                if error is not None and number >= ticket:
                    raise OSError(error.errno, error.strerror)
                return
            self._running = True
            self._begun += 1
        self._lead()

    def _lead(self) -> None:
        failure: OSError | None = None
        try:
            self._sync()
        except OSError as error:
            failure = error
        with self._changed:
            self._running, self._ended = False, self._begun
            if failure is not None:
                self._failed = (self._begun, failure)
            self._changed.notify_all()
        if failure is not None:
            raise failure


def can_sync_whole() -> bool:
    """Whether this system syncs file systems as a whole and says when that failed."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    known = release is not None and (int(release[1]), int(release[2])) >= _TELLS_ERRORS
    return known and os.uname().sysname == "Linux" and hasattr(_libc(), "syncfs")


def sync_whole(directory: str) -> None:
    """Everything written to the file system that holds this directory."""
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc().syncfs(file) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(file)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
