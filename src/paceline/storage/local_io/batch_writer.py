"""Write many small files together: under temporary names, synced with one call, then renamed one by one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial as bind
from time import monotonic
from typing import NamedTuple

from paceline.storage.local_io.file_writes import remove_partial, stored_file_of, write_new_file
from paceline.storage.local_io.group_commit import GroupCommit, sync_filesystem
from paceline.storage.local_io.os_errors import to_storage_error
from paceline.storage.partial_files import partial_name
from paceline.storage.store_errors import StorageError
from paceline.storage.stored_file import FileContent, StoredFile

_SLOW_SECONDS = 0.002
"""Per file; local disks need a twentieth of it, network file systems that gain from parallel writes need more."""


class _StagedFile(NamedTuple):
    key: str
    path: str
    partial: str
    info: os.stat_result


class BatchWriter:
    """Writes batches of files for many threads."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._write_lock = AdaptiveLock()
        self._commits: dict[int, GroupCommit] = {}
        """By device: directories below the root may be on other file systems."""
        self._lock = threading.Lock()

    def write(self, files: Sequence[FileContent]) -> Iterator[StoredFile]:
        """In order; when one cannot be written, those before it are written and yielded, those after it are not."""
        written: list[StoredFile] = []
        staged: list[_StagedFile] = []
        try:
            with self._write_lock.held(len(files)):
                for file in files:
                    staged.append(self._stage(file))
            self._sync(staged)
            with self._write_lock.held(len(files)):
                for each in staged:
                    written.append(_rename_into_place(each))
        except StorageError:
            for each in staged[len(written) :]:
                remove_partial(each.partial)
            yield from written
            raise
        yield from written

    def _stage(self, file: FileContent) -> _StagedFile:
        path, partial = target_and_partial(self._root, file.key, file.md5)
        try:
            return _StagedFile(file.key, path, partial, write_new_file(partial, file.data, sync=False))
        except OSError as error:
            remove_partial(partial)
            raise to_storage_error(path, error) from error

    def _sync(self, staged: Sequence[_StagedFile]) -> None:
        for device in {each.info.st_dev for each in staged}:
            same_device = [each for each in staged if each.info.st_dev == device]
            commit = self._commit_of(device, same_device[0].partial)
            try:
                commit.wait_until_synced(commit.ticket())
            except OSError:
                # The failed write may have been another process's: sync each of our files to find out.
                for each in same_device:
                    _sync_file(each)

    def _commit_of(self, device: int, path: str) -> GroupCommit:
        with self._lock:
            if device not in self._commits:
                self._commits[device] = GroupCommit(bind(sync_filesystem, os.path.dirname(path)))  # noqa: PTH120
            return self._commits[device]


def target_and_partial(root: str, key: str, md5: str) -> tuple[str, str]:
    """The path of a file, and the path it is written to first: that name contains the checksum, so that two writers of
    the same content cannot disturb each other. Strings, because Path objects cost as much as writing a small file."""
    path = f"{root}/{key}"
    directory, _, name = path.rpartition("/")
    return path, f"{directory}/{partial_name(name, md5[:8])}"


def _sync_file(staged: _StagedFile) -> None:
    try:
        file = os.open(staged.partial, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise to_storage_error(staged.path, error) from error


def _rename_into_place(staged: _StagedFile) -> StoredFile:
    try:
        os.replace(staged.partial, staged.path)
    except OSError as error:
        raise to_storage_error(staged.path, error) from error
    return stored_file_of(staged.key, staged.info)


class AdaptiveLock:
    """A lock that admits one thread at a time while the work inside is fast, and all threads when it is slow.

    Every call to the disk releases the interpreter lock and then waits to get it back. Where a call takes microseconds,
    sixteen threads that write at once spend more time on that than on writing. Where it takes milliseconds (network
    file systems), waiting in parallel is faster.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slow = False

    @contextmanager
    def held(self, files: int) -> Iterator[None]:
        if self._slow:
            yield from self._measured(files)
            return
        with self._lock:
            yield from self._measured(files)

    def _measured(self, files: int) -> Iterator[None]:
        started = monotonic()
        yield
        self._slow = monotonic() - started > files * _SLOW_SECONDS
