"""Write the chunks of a file: to a local file or to an object in a bucket; neither is visible before it is complete."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
from collections.abc import Set
from pathlib import Path
from typing import Protocol

import numpy as np

from paceline.checkpoint.formats.ckpt import content_crc
from paceline.checkpoint.plan.file_plan import FilePlan
from paceline.checkpoint.plan.read_plan import read_file_bytes
from paceline.checkpoint.plan.read_tensor import Array
from paceline.checkpoint.tensor_files import LocalFile, SourceFile
from paceline.checkpoint.write_checkpoint import sync_directory
from paceline.storage.checksum import md5, part_count, part_size
from paceline.storage.local_io.file_writes import write_all
from paceline.storage.local_io.os_errors import translate_os_errors
from paceline.storage.partial_files import PARTIAL_SUFFIX, partial_name
from paceline.storage.store_errors import ChangedError, StorageError
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import Store, UnfinishedUpload
from paceline.storage.stores.local import FileStore
from paceline.storage.transfer.retry import Backoff, retry_call

_WRITTEN = "written"
_WRITE = 1 << 20
"""Bytes per write call: larger writes make the kernel search for large free pages, which costs more than it saves."""
_UNSUPPORTED = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY})


class Writer(Protocol):
    chunk: int
    count: int
    state: str

    @property
    def done(self) -> Set[int]: ...

    def length(self, number: int) -> int: ...

    def put(self, number: int, low: int, high: int, file_plan: FilePlan) -> str:
        """Write a chunk; returns its entry for the journal."""
        ...

    def finish(self) -> StoredFile: ...

    def close(self) -> None: ...


class LocalWriter:
    """Writes to a partial file next to the target; its name contains the plan, so that other plans never reuse it."""

    def __init__(self, path: Path, file_plan: FilePlan, chunk: int, resume: UnfinishedUpload | None, plan: str) -> None:
        self.chunk, self.count = chunk, part_count(file_plan.size, chunk)
        self._path, self._size = path, file_plan.size
        self._partial = _partial(path, plan)
        self.state = self._partial.name
        with translate_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not self._partial.exists() or self._partial.stat().st_size != file_plan.size
            self._file = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                self._lock()
                # No fallocate: writing into reserved blocks is half as fast, and free space was checked before.
                os.ftruncate(self._file, file_plan.size)
            except BaseException:
                os.close(self._file)
                if is_new:
                    self._partial.unlink(missing_ok=True)
                raise
        self.done: Set[int] = set() if is_new or resume is None else set(resume.parts)

    def length(self, number: int) -> int:
        return min(self.chunk, self._size - number * self.chunk)

    def put(self, number: int, low: int, high: int, file_plan: FilePlan) -> str:
        with translate_os_errors(self._path):
            for at, data in read_file_bytes(file_plan, low, max(low, min(high, file_plan.body)), self._direct):
                self._write(data, at)
            if high > file_plan.body:
                # The trailer may begin in the previous chunk.
                trailer = content_crc(file_plan, self.chunk)
                write_all(self._file, trailer, file_plan.body)
            # Start writing to disk now, so that the final sync has little left to do.
            os.posix_fadvise(self._file, low, high - low, os.POSIX_FADV_DONTNEED)
        return _WRITTEN

    def finish(self) -> StoredFile:
        with translate_os_errors(self._path):
            os.fsync(self._file)
            os.replace(self._partial, self._path)
            self.close()
            sync_directory(self._path.parent)
            _remove_abandoned(self._path)
        found = FileStore(self._path.parent).stat(self._path.name)
        if found is None:
            raise ChangedError(f"{self._path}: was removed by another process")
        return found

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    @staticmethod
    def bytes_on_disk(path: Path, plan: str) -> int:
        """Disk space that the unfinished file occupies."""
        partial = _partial(path, plan)
        return partial.stat().st_blocks * 512 if partial.exists() else 0

    def _write(self, data: Array, at: int) -> None:
        for start in range(0, len(data), _WRITE):
            write_all(self._file, data[start : start + _WRITE].data, at + start)

    def _direct(self, source: SourceFile, start: int, at: int, length: int) -> None:
        """Copy inside the kernel if possible (or share blocks, if the file system can)."""
        if isinstance(source, LocalFile) and hasattr(os, "copy_file_range"):
            while length:
                try:
                    copied = os.copy_file_range(source.fileno(), self._file, length, start, at)
                except OSError as error:
                    if error.errno not in _UNSUPPORTED:
                        raise
                    break
                if not copied:
                    raise ChangedError(f"{source.name}: shrank while it was read")
                start, at, length = start + copied, at + copied, length - copied
        while length:
            count = min(length, self.chunk)
            write_all(self._file, source.read(start, count), at)
            start, at, length = start + count, at + count, length - count

    def _lock(self) -> None:
        if not _try_lock(self._file):
            raise StorageError(
                f"{self._path}: another process is writing this file", hint="wait for that process, or stop it"
            )


class RemoteWriter:
    """Multipart upload, verified by MD5; resumes parts that an interrupted run uploaded."""

    def __init__(self, store: Store, file_plan: FilePlan, resume: UnfinishedUpload | None) -> None:
        self._store, self._file_plan = store, file_plan
        self.chunk = part_size(file_plan.size)
        self.count = part_count(file_plan.size, self.chunk)
        self._small: StoredFile | None = None
        self._upload = None
        if self.count > 1:
            self._upload = retry_call(
                Backoff(),
                lambda: store.begin_upload(file_plan.key, file_plan.size, part_size=self.chunk, resume=resume),
            )
        self.state = self._upload.upload_id if self._upload else ""
        self._sums: dict[int, str] = dict(self._upload.stored_parts) if self._upload else {}

    @property
    def done(self) -> Set[int]:
        return set(self._upload.stored_parts) if self._upload else set()

    def length(self, number: int) -> int:
        return min(self.chunk, self._file_plan.size - number * self.chunk)

    def put(self, number: int, low: int, high: int, file_plan: FilePlan) -> str:
        data = self._content(low, high, file_plan)
        if self._upload is None:
            self._small = retry_call(Backoff(), lambda: self._store.write(file_plan.key, data.data, md5(data.data)))
            return ""
        upload = self._upload
        self._sums[number] = retry_call(Backoff(), lambda: upload.put_part(number, data.data))
        return self._sums[number]

    def finish(self) -> StoredFile:
        if self._upload is None:
            assert self._small is not None
            return self._small
        upload = self._upload
        return retry_call(Backoff(), lambda: upload.complete([self._sums[number] for number in range(self.count)]))

    def close(self) -> None:
        if self._upload is not None:
            self._upload.abort()

    def _content(self, low: int, high: int, file_plan: FilePlan) -> Array:
        out = np.empty(high - low, np.uint8)
        for at, data in read_file_bytes(file_plan, low, max(low, min(high, file_plan.body))):
            out[at - low : at - low + len(data)] = data
        if high > file_plan.body:
            trailer = np.frombuffer(content_crc(file_plan, self.chunk), np.uint8)
            first = max(low, file_plan.body)
            out[first - low :] = trailer[first - file_plan.body : high - file_plan.body]
        return out


def _partial(path: Path, plan: str) -> Path:
    return path.with_name(partial_name(path.name, plan))


def _remove_abandoned(path: Path) -> None:
    """Remove partial files of interrupted runs with other plans, unless a process is writing them."""
    for found in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL_SUFFIX}"):
        file = os.open(found, os.O_RDWR | os.O_CLOEXEC)
        try:
            if _try_lock(file):
                found.unlink(missing_ok=True)
        finally:
            os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
