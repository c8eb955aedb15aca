"""Read tensor files by ranges, from this machine or from a bucket."""

from __future__ import annotations

import mmap
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from paceline.core.errors import FormatError, UsageError
from paceline.storage.local_io.os_errors import translate_os_errors
from paceline.storage.reachability import require_reachable
from paceline.storage.store_errors import ChangedError
from paceline.storage.stored_file import Data, StoredFile
from paceline.storage.stores.base import Store
from paceline.storage.stores.local import FileStore
from paceline.storage.stores.open_store import open_item, open_store
from paceline.storage.transfer.retry import Backoff, retry_call
from paceline.storage.url import is_remote, parse_url

BLOCK = 8 << 20
"""Bytes per request to a bucket."""
_MIN_MAPPED = 256 << 10
_OPEN_FILES = 1 << 16


class SourceFile(Protocol):
    name: str
    """Path or URL, for messages."""
    size: int
    fingerprint: str
    path: Path | None
    """Set for local files."""

    def read(self, start: int, length: int) -> Data: ...

    def check_unchanged(self) -> None: ...


class LocalFile:
    """Maps large windows of the file, so that the page cache is the only copy; reads small ones."""

    def __init__(self, path: Path) -> None:
        self.path: Path | None = path
        self._path, self.name = path, str(path)
        with translate_os_errors(path):
            # Kept open: opening costs more than reading a small tensor.
            self._file = path.open("rb", buffering=0)
        self.fingerprint, self.size = _fingerprint(os.fstat(self._file.fileno()))

    def read(self, start: int, length: int) -> Data:
        number = self._file.fileno()
        if length < _MIN_MAPPED:
            with translate_os_errors(self._path):
                data = os.pread(number, length, start)
            if len(data) != length:
                raise ChangedError(f"{self.name}: shrank while it was read")
            return data
        skip = start % mmap.ALLOCATIONGRANULARITY
        with translate_os_errors(self._path):
            # Touching a mapping beyond the end of the file would kill the process with SIGBUS.
            if os.fstat(number).st_size < start + length:
                raise ChangedError(f"{self.name}: shrank while it was read")
            window = mmap.mmap(number, length + skip, prot=mmap.PROT_READ, offset=start - skip)
        return memoryview(window)[skip:]

    def check_unchanged(self) -> None:
        with translate_os_errors(self._path):
            if _fingerprint(self._path.stat())[0] != self.fingerprint:
                raise ChangedError(
                    f"{self.name}: changed while it was read",
                    hint="run again when the process that writes it has finished",
                )

    def fileno(self) -> int:
        return self._file.fileno()

    def __del__(self) -> None:
        # No ResourceWarning: an index keeps its file open for as long as it is used.
        if hasattr(self, "_file"):
            self._file.close()


class RemoteFile:
    """Reads blocks of BLOCK bytes, which are cached for neighbouring tensors."""

    path: Path | None = None

    def __init__(self, store: Store, item: StoredFile, cache: BlockCache) -> None:
        self._store, self._item, self._cache = store, item, cache
        self.name, self.size, self.fingerprint = f"{store.url}/{item.key}", item.size, item.fingerprint

    def read(self, start: int, length: int) -> Data:
        first, last = start // BLOCK, (start + length - 1) // BLOCK
        if first == last:
            return memoryview(self._block(first))[start - first * BLOCK :][:length]
        joined = bytearray(length)
        for number in range(first, last + 1):
            low, high = max(start, number * BLOCK), min(start + length, (number + 1) * BLOCK)
            joined[low - start : high - start] = memoryview(self._block(number))[low - number * BLOCK :][: high - low]
        return memoryview(joined)

    def check_unchanged(self) -> None:
        """Nothing to do: every request was for this version of the object."""

    def _block(self, number: int) -> Data:
        start = number * BLOCK
        length = min(BLOCK, self.size - start)
        if length <= 0:
            raise FormatError(f"{self.name}: unexpected end of file at byte {self.size:,}")
        return self._cache.get(
            (self.name, number), lambda: retry_call(Backoff(), lambda: self._store.read(self._item, start, length))
        )


class FileRange:
    """A part of a file, read as a file of its own."""

    path: Path | None = None

    def __init__(self, file: SourceFile, start: int, size: int) -> None:
        self._file, self._start, self.size = file, start, size
        self.name, self.fingerprint = f"{file.name}, byte {start:,}", f"{file.fingerprint}@{start}+{size}"

    def read(self, start: int, length: int) -> Data:
        return self._file.read(self._start + start, length)

    def check_unchanged(self) -> None:
        self._file.check_unchanged()


class BlockCache:
    """Most recently used blocks; threads that need the same block share one request."""

    def __init__(self, most: int) -> None:
        self._max_blocks = max(2, most // BLOCK)
        self._blocks: OrderedDict[tuple[str, int], Data] = OrderedDict()
        self._locks: dict[tuple[str, int], threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int], fetch: Callable[[], Data]) -> Data:
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
            own = self._locks.setdefault(key, threading.Lock())
        with own:
            with self._lock:
                if key in self._blocks:
                    return self._blocks[key]
            data = fetch()
            with self._lock:
                self._blocks[key] = data
                self._locks.pop(key, None)
                while len(self._blocks) > self._max_blocks:
                    self._blocks.popitem(last=False)
            return data


@dataclass
class FileListing:
    """The files below a directory (or a single file), local or remote."""

    url: str
    store: Store
    items: dict[str, StoredFile]
    single: str | None = None
    """Key of the file, if the location is a single file."""
    cache: BlockCache = field(default_factory=lambda: BlockCache(64 << 20))

    def file(self, key: str) -> SourceFile:
        if isinstance(self.store, FileStore):
            return LocalFile(self.store.root / key)
        return RemoteFile(self.store, self.items[key], self.cache)

    def read_all(self, key: str, most: int) -> bytes:
        """Content of a small file."""
        item = self.items[key]
        if item.size > most:
            raise FormatError(f"{self.url}/{key}: too large: {item.size:,} bytes, at most {most:,} expected")
        return bytes(retry_call(Backoff(), lambda: self.store.read(item, 0, item.size)))


@contextmanager
def open_listing(where: str, *, memory: int = 64 << 20) -> Iterator[FileListing]:
    """List the files below a path or URL; an error if there are none."""
    _raise_open_file_limit()
    require_reachable(where)
    single = retry_call(Backoff(), lambda: open_item(where))
    store = single[0] if single else open_store(where)
    try:
        if single:
            item = single[1]
            yield FileListing(parse_url(where).parent.text, store, {item.key: item}, item.key, BlockCache(memory))
            return
        items = {item.key: item for item in retry_call(Backoff(), lambda: list(store.list_files())) if not item.problem}
        if not items:
            what = "no files found" if is_remote(where) or Path(store.url).is_dir() else "no such file or directory"
            raise UsageError(f"{where}: {what}")
        yield FileListing(store.url, store, items, None, BlockCache(memory))
    finally:
        store.close()


def _fingerprint(info: os.stat_result) -> tuple[str, int]:
    return f"{info.st_size}:{info.st_mtime_ns:x}.{info.st_ino:x}", info.st_size


def _raise_open_file_limit() -> None:
    """Raise the limit of open files: one file per rank stays open, and the default of 1,024 only matters for select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
