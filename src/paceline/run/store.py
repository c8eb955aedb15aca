"""The Parquet store of a source: what was read once is not read again until its files change.

    store/
      manifest.json     which section of which part is in which file, with the fingerprint of its source files
      data/*.parquet    rows, many sections to a file
      lock              one writer at a time

Everything is written beside and renamed; a killed process leaves the old manifest and files nobody refers to.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from paceline.errors import PacelineError
from paceline.run.batch import Warning
from paceline.run.places import Target, bring_home, send
from paceline.storage.cache import cache_name, cache_root
from paceline.storage.location import is_remote, parse

READ_VERSION = 3
"""Raise it when a reader or a table changes meaning: stores made before are read anew."""


class StoredWarning(msgspec.Struct, frozen=True):
    rank: int | None
    file: str | None
    message: str
    line: int | None = None
    lost: bool = False

    def thaw(self) -> Warning:
        return Warning(self.rank, self.file, self.message, self.line, self.lost)


class Unit(msgspec.Struct, frozen=True):
    """One section as it was read."""

    number: int
    fingerprint: str
    rank: int | None
    tables: tuple[str, ...]
    warnings: tuple[StoredWarning, ...] = ()


class DataFile(msgspec.Struct, frozen=True):
    table: str
    rows: int
    units: tuple[int, ...]


class Manifest(msgspec.Struct):
    version: int = READ_VERSION
    next_number: int = 1
    units: dict[str, Unit] = {}
    files: dict[str, DataFile] = {}


class Store:
    """A directory of our own; deleting it loses nothing but time. With a URL, a copy of what lies there."""

    def __init__(self, directory: Path, url: str | None = None) -> None:
        self.directory, self.url = directory, url
        self.data = directory / "data"
        if url:
            bring_home(url, directory)
        self.manifest = self._load()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the store's lock, with the manifest as the last writer left it."""
        with self._usable():
            self.data.mkdir(parents=True, exist_ok=True)
            lock = (self.directory / "lock").open("w")
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.manifest = self._load()
            yield

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """A directory that cannot hold a store is the user's to change."""
        try:
            yield
        except OSError as error:
            raise PacelineError(
                f"{self.directory}: cannot hold the store ({error.strerror or error})",
                hint="--store (or PACELINE_CACHE) names a directory of yours with room for it",
            ) from error

    @contextmanager
    def receiving(self, *, far: bool) -> Iterator[Target]:
        """Where readers leave their Parquet files; far away they must see that it is this very directory."""
        if self.url or not far:
            yield Target(self.data, url=f"{self.url}/data" if self.url else None)
            return
        token = self.data / f".seen-by-all-{uuid.uuid4().hex}"
        token.touch()
        try:
            yield Target(self.data, token=token.name)
        finally:
            token.unlink(missing_ok=True)

    def save(self) -> None:
        """Drop units' old rows, forget files without live rows, write the manifest atomically."""
        live = {unit.number for unit in self.manifest.units.values()}
        if self.url:
            bring_home(f"{self.url}/data", self.data)
        dead = [name for name, file in self.manifest.files.items() if not live.intersection(file.units)]
        for name in dead:
            del self.manifest.files[name]
        temporary = self.directory / f".manifest.{uuid.uuid4().hex}.tmp"
        with self._usable():
            with temporary.open("wb") as out:
                out.write(msgspec.json.encode(self.manifest))
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, self.directory / "manifest.json")
        if self.url:
            send(self.directory / "manifest.json", f"{self.url}/manifest.json")
        for name in dead:
            (self.data / name).unlink(missing_ok=True)

    def scan(self, table: str) -> str | None:
        """A SELECT over all live rows of a table; None when there is no row."""
        files = {name: file for name, file in self.manifest.files.items() if file.table == table}
        if not files:
            return None
        live = {unit.number for unit in self.manifest.units.values()}
        stale = {number for file in files.values() for number in file.units} - live
        names = ", ".join("'" + str(self.data / name).replace("'", "''") + "'" for name in sorted(files))
        where = f" WHERE _unit NOT IN ({', '.join(map(str, sorted(stale)))})" if stale else ""
        return f"SELECT * EXCLUDE (_unit) FROM read_parquet([{names}]){where}"

    def rows(self, table: str) -> int:
        """Rows stored for a table, stale ones among them."""
        return sum(file.rows for file in self.manifest.files.values() if file.table == table)

    def _load(self) -> Manifest:
        file = self.directory / "manifest.json"
        try:
            with self._usable():
                text = file.read_bytes() if self.directory.exists() and file.exists() else b"{}"
            manifest = msgspec.json.decode(text, type=Manifest)
        except msgspec.DecodeError:
            return Manifest()  # damaged from outside: reading the source again mends it
        usable = manifest.version == READ_VERSION and all((self.data / name).exists() for name in manifest.files)
        return manifest if usable else Manifest(next_number=manifest.next_number)


def open_store_at(where: str | Path) -> Store:
    """A store at a path, or at a URL with its copy in the cache."""
    if not is_remote(where):
        return Store(Path(where))
    url = parse(where).url
    return Store(cache_root() / "stores" / cache_name(url), url)


def store_directory(source: Path) -> Path:
    """Where the store of a source lies unless the user says otherwise: $PACELINE_CACHE or ~/.cache/paceline."""
    return cache_root() / cache_name(str(source.resolve()))
