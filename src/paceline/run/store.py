"""The Parquet store of a source: what was read once is not read again until its files change.

    store/
      manifest.json     which section of which part is in which file, with the fingerprint of its source files
      data/*.parquet    rows, many sections to a file
      lock              one writer at a time

Everything is written beside and renamed; a killed process leaves the old manifest and files nobody refers to, which the
next writer removes. In a bucket others may still be copying them: there they stay for a day (docs/decisions/096).
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from paceline.errors import PacelineError
from paceline.run.batch import Warning
from paceline.run.file_names import is_ours, is_unfinished
from paceline.run.places import Target, bring_file, bring_home, holds, remove_all, send
from paceline.storage.cache import cache_name, cache_root
from paceline.storage.location import is_remote, parse
from paceline.storage.store import StorageError

READ_VERSION = 4
"""Raise it when a reader or a table changes meaning: stores made before are read anew."""

KEPT_FOR = 24 * 3600.0
"""Seconds that dead files stay in a bucket, for readers who began to copy them."""


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
    size: int | None = None
    """Bytes, by which a file that was cut is told; None: written before sizes were kept."""


class Manifest(msgspec.Struct):
    version: int = READ_VERSION
    next_number: int = 1
    units: dict[str, Unit] = {}
    files: dict[str, DataFile] = {}
    retired: dict[str, float] = {}
    """Files in a bucket that no manifest names any more, and since when (seconds since 1970)."""


class Store:
    """A directory of our own; deleting it loses nothing but time. With a URL, a copy of what lies there."""

    def __init__(self, directory: Path, url: str | None = None) -> None:
        self.directory, self.url = directory, url
        self.data = directory / "data"
        self._fetch()
        self.manifest = self._load()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the store's lock, with the manifest as the last writer left it."""
        with self._usable():
            self.data.mkdir(parents=True, exist_ok=True)
            lock = (self.directory / "lock").open("w")
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            there = self._fetch()
            self.manifest = self._load()
            self._clear_up(there)
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
            yield Target(self.data.absolute(), token=token.name)  # workers stand in other directories
        finally:
            token.unlink(missing_ok=True)

    def save(self) -> None:
        """Drop units' old rows, forget files without live rows, write the manifest atomically."""
        live = {unit.number for unit in self.manifest.units.values()}
        dead = [name for name, file in self.manifest.files.items() if not live.intersection(file.units)]
        for name in dead:
            del self.manifest.files[name]
        if self.url:
            bring_home(f"{self.url}/data", self.data, self.manifest.files)
        expired = self._retire(dead)
        self._write_manifest(msgspec.json.encode(self.manifest, order="deterministic"), expired)
        for name in dead:
            (self.data / name).unlink(missing_ok=True)

    def _write_manifest(self, text: bytes, expired: list[str]) -> None:
        """Where all see it first, then in our copy; what expired goes only from below a manifest that is known to be ours."""
        if self.url:
            send(text, self.url, "manifest.json")
        temporary = self.directory / f".manifest.{uuid.uuid4().hex}.tmp"
        with self._usable():
            with temporary.open("wb") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, self.directory / "manifest.json")
        if self.url and expired and holds(self.url, "manifest.json", text):
            with suppress(StorageError):  # the next writer finds them again
                remove_all(f"{self.url}/data", expired)

    def _retire(self, dead: Iterable[str]) -> list[str]:
        """Note since when files in a bucket are dead; returns those whose time is over, and forgets them."""
        if not self.url:
            return []
        now, retired = time.time(), self.manifest.retired
        since = {**dict.fromkeys(dead, now), **retired}
        unnamed = {name: then for name, then in since.items() if name not in self.manifest.files and is_ours(name)}
        self.manifest.retired = {name: then for name, then in unnamed.items() if now - then < KEPT_FOR}
        return sorted(unnamed.keys() - self.manifest.retired.keys())

    def _clear_up(self, there: frozenset[str]) -> None:
        """Before anything is read: what killed writers left. Of what lies in a bucket somebody may be the writer."""
        now = time.time()
        for name in there - self.manifest.files.keys():
            self.manifest.retired.setdefault(name, now)
        for path in self.data.iterdir():
            if is_unfinished(path.name) or (is_ours(path.name) and path.name not in self.manifest.files):
                path.unlink(missing_ok=True)

    def _fetch(self) -> frozenset[str]:
        """Bring our copy up to date: the manifest, then what it names; returns names of all files there."""
        if not self.url:
            return frozenset()
        if not bring_file(self.url, "manifest.json", self.directory):
            # Nobody made it yet, or somebody removed it: then our copy is of no use to others.
            (self.directory / "manifest.json").unlink(missing_ok=True)
        return bring_home(f"{self.url}/data", self.data, self._decoded().files)

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

    def _decoded(self) -> Manifest:
        file = self.directory / "manifest.json"
        try:
            with self._usable():
                text = file.read_bytes() if self.directory.exists() and file.exists() else b"{}"
            return msgspec.json.decode(text, type=Manifest)
        except msgspec.DecodeError:
            return Manifest()  # damaged from outside: reading the source again mends it

    def _load(self) -> Manifest:
        manifest = self._decoded()
        usable = manifest.version == READ_VERSION and all(map(self._is_whole, manifest.files.items()))
        return manifest if usable else Manifest(next_number=manifest.next_number)

    def _is_whole(self, named: tuple[str, DataFile]) -> bool:
        name, file = named
        try:
            found = (self.data / name).stat().st_size
        except OSError:
            return False
        return file.size is None or found == file.size


def open_store_at(where: str | Path) -> Store:
    """A store at a path, or at a URL with its copy in the cache."""
    if not is_remote(where):
        return Store(Path(where))
    url = parse(where).url
    return Store(cache_root() / "stores" / cache_name(url), url)


def store_directory(source: Path) -> Path:
    """Where the store of a source lies unless the user says otherwise: $PACELINE_CACHE or ~/.cache/paceline."""
    return cache_root() / cache_name(str(source.resolve()))
