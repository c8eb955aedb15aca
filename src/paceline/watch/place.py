"""Where the recorders' files lie while they grow: listed, and read from where we stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.errors import UsageError
from paceline.storage.location import is_remote
from paceline.storage.store import ChangedError, Item, MissingError, Store
from paceline.storage.tree import walk

_OURS = re.compile(r"(?:^|/)rank-\d+-[^/]*/(?:steps|summary)-\d+\.jsonl$")


@dataclass(frozen=True, order=True)
class Growing:
    """A file that somebody may be appending to."""

    key: str
    size: int
    changed: float | None = None
    """When it was last written, in seconds since 1970, where the place tells."""
    item: Item | None = None

    @property
    def directory(self) -> str:
        return self.key.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


class Place(Protocol):
    def files(self) -> Iterator[Growing]:
        """The recorders' files, as they are now."""
        ...

    def read(self, file: Growing, start: int, length: int) -> bytes:
        """These bytes, or b"" when the file was replaced or removed meanwhile: the next look will tell."""
        ...

    def close(self) -> None: ...


def open_place(source: str | Path) -> Place:
    if is_remote(source):
        from paceline.storage.opening import open_store

        return StoredPlace(open_store(source))
    path = Path(source)
    if not path.is_dir():
        raise UsageError(f"{path}: no such directory", hint="give the output_dir of the recorders")
    return LocalPlace(path)


class LocalPlace:
    """Files are read directly: a store would call them changed while they grow."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def files(self) -> Iterator[Growing]:
        for file in walk(self._root).files:
            if _OURS.search(f"{self._root.name}/{file.relative}"):
                yield Growing(file.relative, file.size, file.mtime_ns / 1e9)

    def read(self, file: Growing, start: int, length: int) -> bytes:
        try:
            with (self._root / file.key).open("rb") as stream:
                stream.seek(start)
                return stream.read(length)
        except FileNotFoundError:
            return b""

    def close(self) -> None:
        pass


class StoredPlace:
    """A bucket or another host: objects are replaced by longer ones, so only their new ends are fetched."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def files(self) -> Iterator[Growing]:
        for item in self._store.items():
            if _OURS.search(item.key):
                yield Growing(item.key, item.size, None, item)

    def read(self, file: Growing, start: int, length: int) -> bytes:
        assert file.item is not None
        try:
            return bytes(self._store.read(file.item, start, length))
        except (ChangedError, MissingError):
            return b""

    def close(self) -> None:
        self._store.close()
