"""Where the ranks of MindInsight's trees ran, and which rank a file belongs to.

MindInsight ≤ 1.3 names files by device: <root>/cluster_profiler/<host>/profiler/…_{device}.csv, with a rank table and
host_ips_mapping.txt in <root>. Later ones, and msadvisor, name them by rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.errors import FormatError
from paceline.formats.rank_table import MAPPING, rank_table_files, read_mapping, with_names
from paceline.rank_tables import TableEntry, read_rank_table
from paceline.storage.tree import File, Tree, parent_of

CLUSTER = "cluster_profiler"

_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Place:
    rank: int
    host: str | None = None
    device: int | None = None
    note: str | None = None
    table: tuple[File, ...] = ()
    """The files this was learnt from."""


@dataclass(frozen=True)
class _Table:
    entries: tuple[TableEntry, ...]
    files: tuple[File, ...]


@dataclass(frozen=True)
class Owner:
    """A directory and the number in its file names."""

    directory: str
    key: int


def find_places(tree: Tree, owners: Iterable[Owner]) -> dict[Owner, Place]:
    tables = _read_tables(tree)
    mapped = {
        directory: _shown_names(files[MAPPING]) for directory, files in tree.directories.items() if MAPPING in files
    }
    by_device: dict[str, list[tuple[str, Owner]]] = {}
    places: dict[Owner, Place] = {}
    for owner in owners:
        root, host = _host_of(owner.directory, mapped)
        if host is None:
            places[owner] = _by_rank(owner, _nearest(tables, owner.directory))
        else:
            by_device.setdefault(root, []).append((host, owner))
    for root, members in by_device.items():
        places |= _by_device(members, _nearest(tables, root))
    return places


def _read_tables(tree: Tree) -> dict[str, _Table]:
    """directory → the first readable rank table in it; unreadable ones are reported by the rank-table reader."""
    tables: dict[str, _Table] = {}
    for file in rank_table_files(tree):
        if file.directory in tables:
            continue
        mapping = tree.directories[file.directory].get(MAPPING)
        try:
            names = read_mapping(mapping.path) if mapping else {}
            entries = with_names(read_rank_table(file.path), names)
        except (FormatError, OSError):
            continue
        tables[file.directory] = _Table(entries, (file, mapping) if mapping else (file,))
    return tables


def _nearest(tables: dict[str, _Table], directory: str) -> _Table | None:
    while directory:
        if directory in tables:
            return tables[directory]
        directory = parent_of(directory)
    return tables.get("")


def _host_of(directory: str, mapped: dict[str, set[str]]) -> tuple[str, str | None]:
    """(root of the cluster, host) where files are named by device, else ("", None)."""
    parts = directory.split("/") if directory else []
    for depth, part in enumerate(parts):
        root = "/".join(parts[:depth])
        if part == CLUSTER and depth + 1 < len(parts):
            return root, parts[depth + 1]
        if part in mapped.get(root, ()):
            return root, part
    return "", None


def _shown_names(mapping: File) -> set[str]:
    try:
        return set(read_mapping(mapping.path).values())
    except (FormatError, OSError):
        return set()


def _by_rank(owner: Owner, table: _Table | None) -> Place:
    entry = next((each for each in table.entries if each.rank == owner.key), None) if table else None
    if table is None or entry is None:
        return Place(owner.key)
    return Place(owner.key, entry.host, entry.device, table=table.files)


def _by_device(members: list[tuple[str, Owner]], table: _Table | None) -> dict[Owner, Place]:
    """Ranks from the table; what it does not name is numbered behind it by host and device, with a note."""
    known = {(entry.host, entry.device): entry.rank for entry in table.entries} if table else {}
    files = table.files if table else ()
    note = "not in the rank table; number made up" if table else "no rank table; numbered by host and device"
    spare = max(known.values(), default=-1) + 1
    places: dict[Owner, Place] = {}
    for host, owner in sorted(members, key=lambda member: (_natural(member[0]), member[1].key)):
        rank = known.get((host, owner.key))
        places[owner] = Place(spare if rank is None else rank, host, owner.key, note if rank is None else None, files)
        spare += rank is None
    return places


def _natural(name: str) -> list[tuple[int, str]]:
    """Host 2 before host 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name)]
