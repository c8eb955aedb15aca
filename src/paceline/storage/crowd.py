"""Many small files written together: beside their places, synced with one call, then each made visible."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial as bind
from time import monotonic
from typing import NamedTuple

from paceline.storage.disk import discard, item_of, meaning, write_new
from paceline.storage.shared_sync import SharedSync, sync_whole
from paceline.storage.store import Content, Item, StorageError, partial_name

_SLOW = 0.002
"""Seconds a file; local disks need a twentieth of this, metadata servers that gain by many writers more."""


class _Staged(NamedTuple):
    key: str
    path: str
    partial: str
    info: os.stat_result


class Crowds:
    """Writes groups of files for many threads."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._turns = Turns()
        self._syncs: dict[int, SharedSync] = {}
        """By device: directories below may lie on other file systems."""
        self._lock = threading.Lock()

    def write(self, files: Sequence[Content]) -> Iterator[Item]:
        """In order; when one cannot be written, those before it are there and told, those after it are not."""
        landed: list[Item] = []
        staged: list[_Staged] = []
        try:
            with self._turns.taken(len(files)):
                for file in files:
                    staged.append(self._stage(file))
            self._sync(staged)
            with self._turns.taken(len(files)):
                for each in staged:
                    landed.append(_land(each))
        except StorageError:
            for each in staged[len(landed) :]:
                discard(each.partial)
            yield from landed
            raise
        yield from landed

    def _stage(self, file: Content) -> _Staged:
        path, partial = names(self._root, file.key, file.md5)
        try:
            return _Staged(file.key, path, partial, write_new(partial, file.data, sync=False))
        except OSError as error:
            discard(partial)
            raise meaning(path, error) from error

    def _sync(self, staged: Sequence[_Staged]) -> None:
        for device in {each.info.st_dev for each in staged}:
            here = [each for each in staged if each.info.st_dev == device]
            shared = self._shared_sync(device, here[0].partial)
            try:
                shared.reach(shared.ticket())
            except OSError:
                # It may have been somebody else's file that could not be written: ask for each of ours.
                for each in here:
                    _sync_one(each)

    def _shared_sync(self, device: int, path: str) -> SharedSync:
        with self._lock:
            if device not in self._syncs:
                self._syncs[device] = SharedSync(bind(sync_whole, os.path.dirname(path)))  # noqa: PTH120
            return self._syncs[device]


def names(root: str, key: str, md5: str) -> tuple[str, str]:
    """Where a file goes, and where it is written first: named by content, so that two writers of the same bytes cannot
    disturb each other. Plain strings: paths as objects cost as much as the writing when files are many and small."""
    path = f"{root}/{key}"
    directory, _, name = path.rpartition("/")
    return path, f"{directory}/{partial_name(name, md5[:8])}"


def _sync_one(staged: _Staged) -> None:
    try:
        file = os.open(staged.partial, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise meaning(staged.path, error) from error


def _land(staged: _Staged) -> Item:
    try:
        os.replace(staged.partial, staged.path)
    except OSError as error:
        raise meaning(staged.path, error) from error
    return item_of(staged.key, staged.info)


class Turns:
    """One thread at a time, while that is quick.

    Every call to the disk gives the interpreter to another thread and then has to wait for it; where the call takes
    microseconds, sixteen threads that write at once spend more on that than on writing. Where it takes milliseconds
    (network file systems), waiting at the same time is what helps.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slow = False

    @contextmanager
    def taken(self, files: int) -> Iterator[None]:
        if self._slow:
            yield from self._measured(files)
            return
        with self._lock:
            yield from self._measured(files)

    def _measured(self, files: int) -> Iterator[None]:
        began = monotonic()
        yield
        self._slow = monotonic() - began > files * _SLOW
