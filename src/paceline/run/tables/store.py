"""RunStore: the tables of a source as Parquet files; what was read once is not read again until its files change.

    store/
      manifest.json     which section of which recording is in which file, with the fingerprint of its source files
      data/*.parquet    rows, many sections to a file
      lock              one writer at a time

Files are written under temporary names and renamed. A killed process leaves the old manifest and files that are not in
it, which the next writer removes; in a bucket, where others may still copy them, they stay for a day
(docs/decisions/096).
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

from paceline.core.errors import PacelineError
from paceline.core.message import Sentence
from paceline.run.io_endpoints import (
    StoreTarget,
    download_file,
    download_files,
    has_content,
    remove_files,
    upload_bytes,
)
from paceline.run.read_warning import GapKind, ReadWarning
from paceline.run.tables.store_file_names import is_ours, is_unfinished
from paceline.storage.cache_dir import cache_name, cache_root, make_private
from paceline.storage.store_errors import StorageError
from paceline.storage.url import is_remote, parse_url

READ_VERSION = 12
"""Raise it when the rows of a reader change their meaning: older stores are then read again."""

_BEING_READ = "being-read"
RETENTION_S = 24 * 3600.0
"""How long files without live rows stay in a bucket, for readers that have begun to copy them."""


class StoredWarning(msgspec.Struct, frozen=True):
    rank: int | None
    file: str | None
    said: Sentence
    line: int | None = None
    lost: bool = False
    kind: GapKind = "odd"
    core: bool = True

    def to_warning(self) -> ReadWarning:
        return ReadWarning(self.rank, self.file, self.said, self.line, self.lost, self.kind, self.core)


class StoredSection(msgspec.Struct, frozen=True):
    """One section as it was read."""

    number: int
    fingerprint: str
    rank: int | None
    tables: tuple[str, ...]
    warnings: tuple[StoredWarning, ...] = ()


class ParquetFile(msgspec.Struct, frozen=True):
    table: str
    rows: int
    units: tuple[int, ...]
    size: int | None = None
    """Bytes, to recognise a truncated file; None: written before sizes were stored."""


class StoreManifest(msgspec.Struct):
    version: int = READ_VERSION
    next_number: int = 1
    units: dict[str, StoredSection] = {}
    files: dict[str, ParquetFile] = {}
    retired: dict[str, float] = {}
    """Files in a bucket that are no longer in the manifest, and since when (seconds since 1970)."""


class RunStore:
    """A directory that can be deleted at any time: it is then filled again. With a URL, a local copy of the files there."""

    def __init__(self, directory: Path, url: str | None = None) -> None:
        self.directory, self.url = directory, url
        self.data = directory / "data"
        self._fetch()
        self.manifest = self._load()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the store's lock, with the manifest as the last writer left it."""
        with self._directory_errors():
            make_private(self.directory)
            self.data.mkdir(exist_ok=True)
            lock = (self.directory / "lock").open("w")
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            remote = self._fetch()
            self.manifest = self._load()
            self._remove_leftovers(remote)
            yield

    @property
    def reader_died(self) -> bool:
        """Whether a process died while it read into this store: a file may have crashed it."""
        return (self.directory / _BEING_READ).exists()

    @contextmanager
    def being_read(self) -> Iterator[None]:
        """Leave a mark until the block ends; only the death of the process keeps it."""
        mark = self.directory / _BEING_READ
        with self._directory_errors():
            mark.touch()
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    @contextmanager
    def _directory_errors(self) -> Iterator[None]:
        """Report a directory that cannot hold a store."""
        try:
            yield
        except OSError as error:
            raise PacelineError(
                f"{self.directory}: cannot hold the store ({error.strerror or error})",
                hint="set --store (or PACELINE_CACHE) to a directory with free space that you can write to",
            ) from error

    @contextmanager
    def target(self, *, remote: bool) -> Iterator[StoreTarget]:
        """Where workers put their Parquet files; remote workers check that they see the same directory."""
        if self.url or not remote:
            yield StoreTarget(self.data, url=f"{self.url}/data" if self.url else None)
            return
        token = self.data / f".seen-by-all-{uuid.uuid4().hex}"
        token.touch()
        try:
            yield StoreTarget(self.data.absolute(), token=token.name)  # workers have other working directories
        finally:
            token.unlink(missing_ok=True)

    def save(self) -> None:
        """Forget files without live rows and write the manifest atomically."""
        live = {unit.number for unit in self.manifest.units.values()}
        dead = [name for name, file in self.manifest.files.items() if not live.intersection(file.units)]
        for name in dead:
            del self.manifest.files[name]
        if self.url:
            download_files(f"{self.url}/data", self.data, self.manifest.files)
        expired = self._retire(dead)
        self._write_manifest(msgspec.json.encode(self.manifest, order="deterministic"), expired)
        for name in dead:
            (self.data / name).unlink(missing_ok=True)

    def _write_manifest(self, text: bytes, expired: list[str]) -> None:
        """Write it to the URL first, then to the local copy; expired files are removed only if the manifest there is ours."""
        if self.url:
            upload_bytes(text, self.url, "manifest.json")
        temporary = self.directory / f".manifest.{uuid.uuid4().hex}.tmp"
        with self._directory_errors():
            with temporary.open("wb") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            os.replace(temporary, self.directory / "manifest.json")
        if self.url and expired and has_content(self.url, "manifest.json", text):
            with suppress(StorageError):  # the next writer removes them
                remove_files(f"{self.url}/data", expired)

    def _retire(self, dead: Iterable[str]) -> list[str]:
        """Record since when files in a bucket are unused; returns those that have expired, and forgets them."""
        if not self.url:
            return []
        now, retired = time.time(), self.manifest.retired
        since = {**dict.fromkeys(dead, now), **retired}
        unnamed = {name: then for name, then in since.items() if name not in self.manifest.files and is_ours(name)}
        self.manifest.retired = {name: then for name, then in unnamed.items() if now - then < RETENTION_S}
        return sorted(unnamed.keys() - self.manifest.retired.keys())

    def _remove_leftovers(self, remote: frozenset[str]) -> None:
        """Remove files that killed writers left; those in a bucket may belong to a running writer and only retire."""
        now = time.time()
        for name in remote - self.manifest.files.keys():
            self.manifest.retired.setdefault(name, now)
        for path in self.data.iterdir():
            if is_unfinished(path.name) or (is_ours(path.name) and path.name not in self.manifest.files):
                path.unlink(missing_ok=True)

    def _fetch(self) -> frozenset[str]:
        """Update the local copy: the manifest, then its files; returns the names of all files at the URL."""
        if not self.url:
            return frozenset()
        if not download_file(self.url, "manifest.json", self.directory):
            # It does not exist yet or was removed: then the local copy must not be used either.
            (self.directory / "manifest.json").unlink(missing_ok=True)
        return download_files(f"{self.url}/data", self.data, self._read_manifest().files)

    def scan(self, table: str) -> str | None:
        """A SELECT over all live rows of a table, without parameters because views are made of it; None if there is no row."""
        files = {name: file for name, file in self.manifest.files.items() if file.table == table}
        if not files:
            return None
        live = {unit.number for unit in self.manifest.units.values()}
        stale = {number for file in files.values() for number in file.units} - live
        names = ", ".join("'" + str(self.data / name).replace("'", "''") + "'" for name in sorted(files))
        where = f" WHERE _unit NOT IN ({', '.join(map(str, sorted(stale)))})" if stale else ""
        return f"SELECT * EXCLUDE (_unit) FROM read_parquet([{names}]){where}"

    def rows(self, table: str) -> int:
        """Rows stored for a table, including stale ones."""
        return sum(file.rows for file in self.manifest.files.values() if file.table == table)

    def _read_manifest(self) -> StoreManifest:
        file = self.directory / "manifest.json"
        try:
            with self._directory_errors():
                text = file.read_bytes() if self.directory.exists() and file.exists() else b"{}"
            return msgspec.json.decode(text, type=StoreManifest)
        except msgspec.DecodeError:
            return StoreManifest()  # damaged from outside: the source is read again

    def _load(self) -> StoreManifest:
        manifest = self._read_manifest()
        usable = manifest.version == READ_VERSION and all(map(self._is_complete, manifest.files.items()))
        return manifest if usable else StoreManifest(next_number=manifest.next_number)

    def _is_complete(self, named: tuple[str, ParquetFile]) -> bool:
        name, file = named
        try:
            found = (self.data / name).stat().st_size
        except OSError:
            return False
        return file.size is None or found == file.size


def open_run_store(where: str | Path) -> RunStore:
    """A store at a path, or at a URL with its copy in the cache."""
    if not is_remote(where):
        return RunStore(Path(where))
    from paceline.storage.reachability import require_reachable

    url = parse_url(where).text
    require_reachable(url)
    return RunStore(cache_root() / "stores" / cache_name(url), url)


def default_store_directory(source: Path) -> Path:
    """The store of a source unless the user sets one: below $PACELINE_CACHE or ~/.cache/paceline."""
    return cache_root() / cache_name(str(source.resolve()))
