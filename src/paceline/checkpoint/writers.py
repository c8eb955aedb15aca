"""Where chunks go: a file of this machine, or an object in a bucket; nobody sees either before it is complete."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
from collections.abc import Set
from pathlib import Path
from typing import Protocol

import numpy as np

from paceline.checkpoint.arrays import sync_directory
from paceline.checkpoint.chunks import content_crc
from paceline.checkpoint.files import LocalFile, SourceFile
from paceline.checkpoint.frame import Frame
from paceline.checkpoint.gather import Array, gather
from paceline.storage.checksum import md5, part_count, part_size
from paceline.storage.disk import explained, write_all
from paceline.storage.file import FileStore
from paceline.storage.retry import Backoff, patiently
from paceline.storage.store import PARTIAL, ChangedError, Item, Resume, StorageError, Store, partial_name

_WRITTEN = "written"
_WRITE = 1 << 20
"""Larger writes make the kernel look for large free pages, which costs more than it saves."""
_CANNOT = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY})


class Writer(Protocol):
    chunk: int
    count: int
    state: str

    @property
    def done(self) -> Set[int]: ...

    def length(self, number: int) -> int: ...

    def put(self, number: int, low: int, high: int, frame: Frame) -> str:
        """Write a chunk; returns what the journal should remember of it."""
        ...

    def finish(self) -> Item: ...

    def leave(self) -> None: ...


class LocalWriter:
    """Parts in a file beside the target, named by its plan: what another plan left there is never taken for ours."""

    def __init__(self, path: Path, frame: Frame, chunk: int, resume: Resume | None, plan: str) -> None:
        self.chunk, self.count = chunk, part_count(frame.size, chunk)
        self._path, self._size = path, frame.size
        self._partial = _partial(path, plan)
        self.state = self._partial.name
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = not self._partial.exists() or self._partial.stat().st_size != frame.size
            self._file = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                self._lock()
                # Not reserved: writing into reserved blocks is half as fast, and free space was looked at before.
                os.ftruncate(self._file, frame.size)
            except BaseException:
                os.close(self._file)
                if fresh:
                    self._partial.unlink(missing_ok=True)
                raise
        self.done: Set[int] = set() if fresh or resume is None else set(resume.parts)

    def length(self, number: int) -> int:
        return min(self.chunk, self._size - number * self.chunk)

    def put(self, number: int, low: int, high: int, frame: Frame) -> str:
        with explained(self._path):
            for at, data in gather(frame, low, max(low, min(high, frame.body)), self._direct):
                self._write(data, at)
            if high > frame.body:
                # The trailer may begin in the chunk before.
                trailer = content_crc(frame, self.chunk)
                write_all(self._file, trailer, frame.body)
            # Starts writing to the disk now, so that the sync at the end has little left to do.
            os.posix_fadvise(self._file, low, high - low, os.POSIX_FADV_DONTNEED)
        return _WRITTEN

    def finish(self) -> Item:
        with explained(self._path):
            os.fsync(self._file)
            os.replace(self._partial, self._path)
            self.leave()
            sync_directory(self._path.parent)
            _remove_abandoned(self._path)
        found = FileStore(self._path.parent).stat(self._path.name)
        if found is None:
            raise ChangedError(f"{self._path}: was removed by somebody else")
        return found

    def leave(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    @staticmethod
    def held(path: Path, plan: str) -> int:
        """Bytes of the disk that this file holds already, unfinished."""
        partial = _partial(path, plan)
        return partial.stat().st_blocks * 512 if partial.exists() else 0

    def _write(self, data: Array, at: int) -> None:
        for start in range(0, len(data), _WRITE):
            write_all(self._file, data[start : start + _WRITE].data, at + start)

    def _direct(self, source: SourceFile, start: int, at: int, length: int) -> None:
        """Within the kernel where it can (and within the disk, where the file system shares blocks)."""
        if isinstance(source, LocalFile) and hasattr(os, "copy_file_range"):
            while length:
                try:
                    copied = os.copy_file_range(source.fileno(), self._file, length, start, at)
                except OSError as error:
                    if error.errno not in _CANNOT:
                        raise
                    break
                if not copied:
                    raise ChangedError(f"{source.name}: became shorter while it was read")
                start, at, length = start + copied, at + copied, length - copied
        while length:
            count = min(length, self.chunk)
            write_all(self._file, source.read(start, count), at)
            start, at, length = start + count, at + count, length - count

    def _lock(self) -> None:
        if not _is_locked_by_us(self._file):
            raise StorageError(f"{self._path}: somebody else is writing it", hint="wait for it, or stop it")


class RemoteWriter:
    """Parts of an upload, verified by MD5; what a killed run uploaded is found again."""

    def __init__(self, store: Store, frame: Frame, resume: Resume | None) -> None:
        self._store, self._frame = store, frame
        self.chunk = part_size(frame.size)
        self.count = part_count(frame.size, self.chunk)
        self._small: Item | None = None
        self._upload = None
        if self.count > 1:
            self._upload = patiently(Backoff(), lambda: store.begin(frame.key, frame.size, self.chunk, resume))
        self.state = self._upload.state if self._upload else ""
        self._sums: dict[int, str] = dict(self._upload.done) if self._upload else {}

    @property
    def done(self) -> Set[int]:
        return set(self._upload.done) if self._upload else set()

    def length(self, number: int) -> int:
        return min(self.chunk, self._frame.size - number * self.chunk)

    def put(self, number: int, low: int, high: int, frame: Frame) -> str:
        data = self._content(low, high, frame)
        if self._upload is None:
            self._small = patiently(Backoff(), lambda: self._store.write(frame.key, data.data, md5(data.data)))
            return ""
        upload = self._upload
        self._sums[number] = patiently(Backoff(), lambda: upload.put(number, data.data))
        return self._sums[number]

    def finish(self) -> Item:
        if self._upload is None:
            assert self._small is not None
            return self._small
        upload = self._upload
        return patiently(Backoff(), lambda: upload.finish([self._sums[number] for number in range(self.count)]))

    def leave(self) -> None:
        if self._upload is not None:
            self._upload.leave()

    def _content(self, low: int, high: int, frame: Frame) -> Array:
        out = np.empty(high - low, np.uint8)
        for at, data in gather(frame, low, max(low, min(high, frame.body))):
            out[at - low : at - low + len(data)] = data
        if high > frame.body:
            trailer = np.frombuffer(content_crc(frame, self.chunk), np.uint8)
            first = max(low, frame.body)
            out[first - low :] = trailer[first - frame.body : high - frame.body]
        return out


def _partial(path: Path, plan: str) -> Path:
    return path.with_name(partial_name(path.name, plan))


def _remove_abandoned(path: Path) -> None:
    """What killed runs with other plans left of this file goes, unless somebody is writing it."""
    for found in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"):
        file = os.open(found, os.O_RDWR | os.O_CLOEXEC)
        try:
            if _is_locked_by_us(file):
                found.unlink(missing_ok=True)
        finally:
            os.close(file)


def _is_locked_by_us(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
