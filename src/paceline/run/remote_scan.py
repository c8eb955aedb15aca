"""Scan a remote source: fetch samples of its files, so that readers recognise it while the data stays remote.

Readers recognise a format by names, by the head and tail of a file, or by the small tables of a database. Workers send
just that, and here it becomes files of the right size with a hole in the middle; complete files are fetched by the
workers that read them (run/io_endpoints.py). Samples are cached: a file is sampled again only when its version changes.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.core.errors import PacelineError, UsageError
from paceline.core.scratch_directory import scratch_directory
from paceline.formats.file_selection import needed_for_diagnosis
from paceline.run.executors.executor import CrashedTask, Executor
from paceline.run.io_endpoints import ReadSource
from paceline.storage.cache_dir import cache_name, cache_part
from paceline.storage.file_tree import File, Tree
from paceline.storage.reachability import require_reachable
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import Store
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.transfer_plan import is_safe_key
from paceline.storage.url import parse_url

MAX_COMPLETE = 2 << 20
"""Bytes; files up to this size are sent completely."""
END = 1 << 20
"""Bytes that are sent from either end of a larger file."""
SAMPLE_ROWS = 500
"""Rows that are sent of each table of a database; tables that identify the recording have fewer."""
FILES_AT_ONCE = 256
BYTES_AT_ONCE = 64 << 20


@dataclass(frozen=True)
class FileSample:
    """Head and tail of one file; of a database, a smaller database as the head."""

    key: str
    head: bytes
    tail: bytes


@dataclass(frozen=True)
class _SampleTask:
    url: str
    items: tuple[StoredFile, ...]


def scan_remote(url: str, executor: Executor) -> tuple[Tree, ReadSource]:
    """The files below a URL as a tree of samples, and the source that workers fetch them from."""
    root = cache_part("samples") / cache_name(parse_url(url).text)
    items = _list_files(url)
    known = _load_versions(root)
    changed = [item for item in items if known.get(item.key) != item.fingerprint]
    for task, samples in executor.run(sample_files, [_SampleTask(url, part) for part in _batches(changed)]):
        if isinstance(samples, CrashedTask):
            raise PacelineError(f"{url}: {task.items[0].key} and others cannot be read: {samples.reason}")
        for sample, item in zip(samples, task.items, strict=True):
            _write_sample(root / sample.key, sample, item.size)
    _save_versions(root, items)
    files = tuple(sorted(File(item.key, root / item.key, item.size, _version_number(item)) for item in items))
    return Tree(root, files), ReadSource(root, url, items)


def sample_files(task: _SampleTask) -> list[FileSample]:
    """Runs on a worker."""
    with closing(open_store(task.url)) as store:
        return [_sample_file(store, item) for item in task.items]


def _sample_file(store: Store, item: StoredFile) -> FileSample:
    if item.key.endswith(".db") and item.size > MAX_COMPLETE:
        return FileSample(item.key, _small_database(store, item), b"")
    if item.size <= MAX_COMPLETE:
        return FileSample(item.key, bytes(store.read(item, 0, item.size)) if item.size else b"", b"")
    return FileSample(item.key, bytes(store.read(item, 0, END)), bytes(store.read(item, item.size - END, END)))


def _small_database(store: Store, item: StoredFile) -> bytes:
    """All tables, of each at most SAMPLE_ROWS rows."""
    with scratch_directory() as scratch:
        whole, small = scratch / "whole.db", scratch / "small.db"
        with whole.open("wb") as out:
            for start in range(0, item.size, 8 << 20):
                out.write(store.read(item, start, min(8 << 20, item.size - start)))
        try:
            with closing(sqlite3.connect(whole)) as source, closing(sqlite3.connect(small)) as target:
                _copy_sample_rows(source, target)
        except sqlite3.Error:
            return whole.read_bytes()[:END]  # damaged: the reader will report it
        return small.read_bytes()


def _copy_sample_rows(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    tables = source.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    for name, sql in tables.fetchall():
        quoted = '"' + name.replace('"', '""') + '"'
        target.execute(sql)
        rows = source.execute(f"SELECT * FROM {quoted} LIMIT ?", (SAMPLE_ROWS,)).fetchall()
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            target.executemany(f"INSERT INTO {quoted} VALUES ({marks})", rows)
    target.commit()


def _list_files(url: str) -> tuple[StoredFile, ...]:
    require_reachable(url)
    with closing(open_store(url)) as store:
        items = tuple(item for item in store.list_files() if needed_for_diagnosis(item.key) and is_safe_key(item.key))
    if not items:
        raise UsageError(f"{url}: no profile there", hint="check the name; `paceline ls` lists what exists")
    return items


def _batches(items: Iterable[StoredFile]) -> Iterator[tuple[StoredFile, ...]]:
    part: list[StoredFile] = []
    size = 0
    for item in items:
        cost = item.size if item.key.endswith(".db") else min(item.size, 2 * END)
        if part and (len(part) == FILES_AT_ONCE or size + cost > BYTES_AT_ONCE):
            yield tuple(part)
            part, size = [], 0
        part.append(item)
        size += cost
    if part:
        yield tuple(part)


def _write_sample(path: Path, sample: FileSample, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as out:
        out.write(sample.head)
        if sample.tail:
            out.seek(size - len(sample.tail))
            out.write(sample.tail)
    os.replace(temporary, path)


def _load_versions(root: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode((root / ".versions").read_bytes(), type=dict[str, str])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def _save_versions(root: Path, items: Iterable[StoredFile]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    temporary = root / ".versions.tmp"
    temporary.write_bytes(msgspec.json.encode({item.key: item.fingerprint for item in items}))
    os.replace(temporary, root / ".versions")


def _version_number(item: StoredFile) -> int:
    """A number that changes with the version, in place of a modification time in the store's fingerprints."""
    return int.from_bytes(hashlib.sha256(item.version.encode()).digest()[:7], "big")
