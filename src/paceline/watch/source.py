"""The recorders' log files while they grow: list them, and read byte ranges, from a directory or a remote store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.core.errors import UsageError
from paceline.storage.file_tree import walk
from paceline.storage.store_errors import ChangedError, MissingError
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import Store
from paceline.storage.url import is_remote

_LOG_FILE = re.compile(r"(?:^|/)rank-\d+-[^/]*/(?:steps|summary)-\d+\.jsonl$")


@dataclass(frozen=True, order=True)
class LogFile:
    """A file that may still be appended to."""

    key: str
    size: int
    modified: float | None = None
    """In seconds since 1970; None if the store does not tell."""
    item: StoredFile | None = None

    @property
    def directory(self) -> str:
        return self.key.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


class LogSource(Protocol):
    def files(self) -> Iterator[LogFile]:
        """The recorders' files, as they are now."""

    def read(self, file: LogFile, start: int, length: int) -> bytes:
        """These bytes, or b"" if the file was replaced or removed meanwhile; the next poll sees the new state."""

    def close(self) -> None: ...


def open_log_source(source: str | Path) -> LogSource:
    if is_remote(source):
        from paceline.storage.reachability import require_reachable
        from paceline.storage.stores.open_store import open_store

        require_reachable(source)
        return RemoteLogs(open_store(source))
    path = Path(source)
    if not path.is_dir():
        raise UsageError(f"{path}: no such directory", hint="give the output_dir of the recorders")
    return LocalLogs(path)


class LocalLogs:
    """Files are read directly: a store would report files that grow as changed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def files(self) -> Iterator[LogFile]:
        for file in walk(self._root).files:
            if _LOG_FILE.search(f"{self._root.name}/{file.relative}"):
                yield LogFile(file.relative, file.size, file.mtime_ns / 1e9)

    def read(self, file: LogFile, start: int, length: int) -> bytes:
        try:
            with (self._root / file.key).open("rb") as stream:
                stream.seek(start)
                return stream.read(length)
        except FileNotFoundError:
            return b""

    def close(self) -> None:
        pass


class RemoteLogs:
    """A bucket or another host: objects are replaced by longer ones, so only the appended bytes are fetched."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def files(self) -> Iterator[LogFile]:
        for item in self._store.list_files():
            if _LOG_FILE.search(item.key):
                yield LogFile(item.key, item.size, None, item)

    def read(self, file: LogFile, start: int, length: int) -> bytes:
        assert file.item is not None
        try:
            return bytes(self._store.read(file.item, start, length))
        except (ChangedError, MissingError):
            return b""

    def close(self) -> None:
        self._store.close()
