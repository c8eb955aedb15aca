"""A first look at a remote source, so that readers find what is in it while the data stays where it is.

Readers recognise a format by names, by the head and tail of a file, or by the small tables of a database. So workers
send just that, and it is laid out here as files of the right size with a hole in the middle; reading one whole is the
workers' business (run/places.py). Looks are kept: a file is looked at again only when its version changes.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.errors import PacelineError, UsageError
from paceline.run.engines import Engine, Lost
from paceline.run.places import Source
from paceline.storage.cache import cache_name, cache_root
from paceline.storage.location import parse
from paceline.storage.opening import open_store
from paceline.storage.plan import is_safe
from paceline.storage.selection import for_diagnosis
from paceline.storage.store import Item, Store
from paceline.storage.tree import File, Tree

WHOLE = 2 << 20
"""Up to this size a file is simply sent."""
END = 1 << 20
"""Bytes of a larger file that are sent from either end."""
FEW_ROWS = 500
"""Tables of a database with more rows than this tell nothing of whose it is; some rows are sent all the same."""
FILES_AT_ONCE = 256
BYTES_AT_ONCE = 64 << 20


@dataclass(frozen=True)
class _Look:
    """One file as far as it was looked at; a database is sent as a smaller one."""

    key: str
    head: bytes
    tail: bytes


@dataclass(frozen=True)
class _Task:
    url: str
    items: tuple[Item, ...]


def glance(url: str, engine: Engine) -> tuple[Tree, Source]:
    """What lies below a URL, as a tree of looks; and the source that workers fetch from."""
    root = cache_root() / "looks" / cache_name(parse(url).url)
    items = _listed(url)
    known = _known(root)
    news = [item for item in items if known.get(item.key) != item.fingerprint]
    for task, looks in engine.run(look, [_Task(url, part) for part in _parts(news)]):
        if isinstance(looks, Lost):
            raise PacelineError(f"{url}: {task.items[0].key} and others cannot be looked at: {looks.reason}")
        for seen, item in zip(looks, task.items, strict=True):
            _lay_out(root / seen.key, seen, item.size)
    _remember(root, items)
    files = tuple(sorted(File(item.key, root / item.key, item.size, _as_time(item)) for item in items))
    return Tree(root, files), Source(root, url, items)


def look(task: _Task) -> list[_Look]:
    """On a worker: the ends of these files."""
    with closing(open_store(task.url)) as store:
        return [_look(store, item) for item in task.items]


def _look(store: Store, item: Item) -> _Look:
    if item.key.endswith(".db") and item.size > WHOLE:
        return _Look(item.key, _small_database(store, item), b"")
    if item.size <= WHOLE:
        return _Look(item.key, bytes(store.read(item, 0, item.size)) if item.size else b"", b"")
    return _Look(item.key, bytes(store.read(item, 0, END)), bytes(store.read(item, item.size - END, END)))


def _small_database(store: Store, item: Item) -> bytes:
    """All tables, but of the large ones only some rows."""
    with tempfile.TemporaryDirectory(prefix="paceline-") as scratch:
        whole, small = Path(scratch) / "whole.db", Path(scratch) / "small.db"
        with whole.open("wb") as out:
            for start in range(0, item.size, 8 << 20):
                out.write(store.read(item, start, min(8 << 20, item.size - start)))
        try:
            with closing(sqlite3.connect(whole)) as source, closing(sqlite3.connect(small)) as target:
                _copy_few_rows(source, target)
        except sqlite3.Error:
            return whole.read_bytes()[:END]  # damaged: the reader says so by what it sees
        return small.read_bytes()


def _copy_few_rows(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    tables = source.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    for name, sql in tables.fetchall():
        quoted = '"' + name.replace('"', '""') + '"'
        target.execute(sql)
        rows = source.execute(f"SELECT * FROM {quoted} LIMIT {FEW_ROWS}").fetchall()
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            target.executemany(f"INSERT INTO {quoted} VALUES ({marks})", rows)
    target.commit()


def _listed(url: str) -> tuple[Item, ...]:
    with closing(open_store(url)) as store:
        items = tuple(item for item in store.items() if for_diagnosis(item.key) and is_safe(item.key))
    if not items:
        raise UsageError(f"{url}: no profile there", hint="paceline ls shows what is; check the name")
    return items


def _parts(items: Iterable[Item]) -> Iterator[tuple[Item, ...]]:
    part: list[Item] = []
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


def _lay_out(path: Path, seen: _Look, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as out:
        out.write(seen.head)
        if seen.tail:
            out.seek(size - len(seen.tail))
            out.write(seen.tail)
    os.replace(temporary, path)


def _known(root: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode((root / ".looks").read_bytes(), type=dict[str, str])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def _remember(root: Path, items: Iterable[Item]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    temporary = root / ".looks.tmp"
    temporary.write_bytes(msgspec.json.encode({item.key: item.fingerprint for item in items}))
    os.replace(temporary, root / ".looks")


def _as_time(item: Item) -> int:
    """A number that changes with the version, for the store's fingerprints."""
    return int.from_bytes(hashlib.sha256(item.version.encode()).digest()[:7], "big")
