"""Files that hold tensors, wherever they lie: read by ranges, never as a whole."""

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

from paceline.errors import FormatError, UsageError
from paceline.storage.disk import explained
from paceline.storage.file import FileStore
from paceline.storage.location import is_remote, parse
from paceline.storage.opening import open_item, open_store
from paceline.storage.retry import Backoff, patiently
from paceline.storage.store import ChangedError, Data, Item, Store

BLOCK = 8 << 20
"""What one request to a bucket asks for."""
_MAPPED = 256 << 10
_FILES = 1 << 16


class SourceFile(Protocol):
    name: str
    """As people know it: a path or URL."""
    size: int
    fingerprint: str
    path: Path | None
    """Of a file of this machine."""

    def read(self, start: int, length: int) -> Data: ...

    def check_unchanged(self) -> None: ...


class LocalFile:
    """Large windows of the file are mapped, so that the kernel's cache is the only copy; small ones are read."""

    def __init__(self, path: Path) -> None:
        self.path: Path | None = path
        self._path, self.name = path, str(path)
        with explained(path):
            # Kept open, because opening costs more than reading a small tensor.
            self._file = path.open("rb", buffering=0)
        self.fingerprint, self.size = _print_of(os.fstat(self._file.fileno()))

    def read(self, start: int, length: int) -> Data:
        number = self._file.fileno()
        if length < _MAPPED:
            with explained(self._path):
                data = os.pread(number, length, start)
            if len(data) != length:
                raise ChangedError(f"{self.name}: became shorter while it was read")
            return data
        skip = start % mmap.ALLOCATIONGRANULARITY
        with explained(self._path):
            # A window beyond the end would end the process with SIGBUS when it is touched.
            if os.fstat(number).st_size < start + length:
                raise ChangedError(f"{self.name}: became shorter while it was read")
            window = mmap.mmap(number, length + skip, prot=mmap.PROT_READ, offset=start - skip)
        return memoryview(window)[skip:]

    def check_unchanged(self) -> None:
        with explained(self._path):
            if _print_of(self._path.stat())[0] != self.fingerprint:
                raise ChangedError(
                    f"{self.name}: changed while it was read", hint="run again when its writer has finished"
                )

    def fileno(self) -> int:
        return self._file.fileno()

    def __del__(self) -> None:
        # Warnings about files that are closed late help nobody: an index lives as long as its file is needed.
        if hasattr(self, "_file"):
            self._file.close()


class RemoteFile:
    """Read in blocks, which neighbours share."""

    path: Path | None = None

    def __init__(self, store: Store, item: Item, cache: BlockCache) -> None:
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
        """Every request asked for this version, so there is nothing left to check."""

    def _block(self, number: int) -> Data:
        start = number * BLOCK
        length = min(BLOCK, self.size - start)
        if length <= 0:
            raise FormatError(f"{self.name}: ends at byte {self.size:,}")
        return self._cache.get(
            (self.name, number), lambda: patiently(Backoff(), lambda: self._store.read(self._item, start, length))
        )


class BlockCache:
    """The blocks read last; two threads that want the same block ask once."""

    def __init__(self, most: int) -> None:
        self._most = max(2, most // BLOCK)
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
                while len(self._blocks) > self._most:
                    self._blocks.popitem(last=False)
            return data


@dataclass
class Place:
    """A directory (or one file) with everything below it, local or remote."""

    url: str
    store: Store
    items: dict[str, Item]
    single: str | None = None
    """The key, where the place is one file."""
    cache: BlockCache = field(default_factory=lambda: BlockCache(64 << 20))

    def file(self, key: str) -> SourceFile:
        if isinstance(self.store, FileStore):
            return LocalFile(self.store.root / key)
        return RemoteFile(self.store, self.items[key], self.cache)

    def read_all(self, key: str, most: int) -> bytes:
        """A small file, whole."""
        item = self.items[key]
        if item.size > most:
            raise FormatError(f"{self.url}/{key}: {item.size:,} bytes where at most {most:,} make sense")
        return bytes(patiently(Backoff(), lambda: self.store.read(item, 0, item.size)))


@contextmanager
def opened(where: str, *, memory: int = 64 << 20) -> Iterator[Place]:
    """The place a path or URL names, with its listing; says so when there is nothing."""
    _allow_many_files()
    single = patiently(Backoff(), lambda: open_item(where))
    store = single[0] if single else open_store(where)
    try:
        if single:
            item = single[1]
            yield Place(parse(where).parent.url, store, {item.key: item}, item.key, BlockCache(memory))
            return
        items = {item.key: item for item in patiently(Backoff(), lambda: list(store.items())) if not item.problem}
        if not items:
            what = "nothing there" if is_remote(where) or Path(store.url).is_dir() else "no such file or directory"
            raise UsageError(f"{where}: {what}")
        yield Place(store.url, store, items, None, BlockCache(memory))
    finally:
        store.close()


def _print_of(info: os.stat_result) -> tuple[str, int]:
    return f"{info.st_size}:{info.st_mtime_ns:x}.{info.st_ino:x}", info.st_size


def _allow_many_files() -> None:
    """A file per rank is kept open; the usual limit of 1,024 is there for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
