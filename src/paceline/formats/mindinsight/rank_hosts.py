"""Rank, host and device of the files in MindInsight trees.

MindInsight ≤ 1.3 names files by device: <root>/cluster_profiler/<host>/profiler/…_{device}.csv, with a rank table and
host_ips_mapping.txt in <root>. Later versions and msadvisor name them by rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.core.errors import FormatError
from paceline.core.message import Message, message
from paceline.core.rank_tables import RankTableEntry, read_rank_table
from paceline.formats.rank_table import HOST_NAMES
from paceline.formats.rank_table.reader import rank_table_files, read_host_names, with_host_names
from paceline.storage.file_tree import File, Tree, parent_of

CLUSTER_DIRECTORY = "cluster_profiler"

_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class RankPlacement:
    rank: int
    host: str | None = None
    device: int | None = None
    note: Message | None = None
    table: tuple[File, ...] = ()
    """The files that record it."""
    assumed: bool = False
    """Whether the rank is a guess."""


@dataclass(frozen=True)
class _RankTable:
    entries: tuple[RankTableEntry, ...]
    files: tuple[File, ...]


@dataclass(frozen=True)
class NumberedDirectory:
    """A directory and the number in the names of its files: a rank or a device."""

    directory: str
    key: int


def find_placements(tree: Tree, directories: Iterable[NumberedDirectory]) -> dict[NumberedDirectory, RankPlacement]:
    tables = _read_tables(tree)
    mapped = {
        directory: _shown_names(files[HOST_NAMES])
        for directory, files in tree.directories.items()
        if HOST_NAMES in files
    }
    by_device: dict[str, list[tuple[str, NumberedDirectory]]] = {}
    placements: dict[NumberedDirectory, RankPlacement] = {}
    directories = list(directories)
    by_table = _hosts_of_tables(directories, tables)
    for numbered in directories:
        root, host = _host_of(numbered.directory, mapped)
        if host is None:
            root, host = by_table.get(numbered.directory, ("", None))
        if host is None:
            placements[numbered] = _placement_by_rank(numbered, _nearest(tables, numbered.directory))
        else:
            by_device.setdefault(root, []).append((host, numbered))
    for root, members in by_device.items():
        placements |= _placements_by_device(members, _nearest(tables, root))
    return placements


def _hosts_of_tables(
    directories: Iterable[NumberedDirectory], tables: dict[str, _RankTable]
) -> dict[str, tuple[str, str]]:
    """directory → (root, host) where a rank table above names the host, and no file there is numbered by rank.

    So a cluster_profiler directory that was renamed is recognised; on a host whose devices and ranks have the same
    numbers both readings are the same.
    """
    keys: dict[str, set[int]] = {}
    for numbered in directories:
        keys.setdefault(numbered.directory, set()).add(numbered.key)
    found = {}
    for directory, numbers in keys.items():
        table = _nearest(tables, directory)
        root = next((above for above, each in tables.items() if each is table), "")
        for host in directory.removeprefix(f"{root}/" if root else "").split("/") if table else ():
            devices = {entry.device for entry in table.entries if entry.host == host} if table else set()
            if devices and numbers <= devices:
                found[directory] = (root, host)
    return found


def _read_tables(tree: Tree) -> dict[str, _RankTable]:
    """directory → its first readable rank table; the rank-table reader reports unreadable ones."""
    tables: dict[str, _RankTable] = {}
    for file in rank_table_files(tree):
        if file.directory in tables:
            continue
        mapping = tree.directories[file.directory].get(HOST_NAMES)
        try:
            names = read_host_names(mapping.path) if mapping else {}
            entries = with_host_names(read_rank_table(file.path), names)
        except (FormatError, OSError):
            continue
        tables[file.directory] = _RankTable(entries, (file, mapping) if mapping else (file,))
    return tables


def _nearest(tables: dict[str, _RankTable], directory: str) -> _RankTable | None:
    while directory:
        if directory in tables:
            return tables[directory]
        directory = parent_of(directory)
    return tables.get("")


def _host_of(directory: str, mapped: dict[str, set[str]]) -> tuple[str, str | None]:
    """(root of the cluster, host) if files are named by device, otherwise ("", None)."""
    parts = directory.split("/") if directory else []
    for depth, part in enumerate(parts):
        root = "/".join(parts[:depth])
        if part == CLUSTER_DIRECTORY and depth + 1 < len(parts):
            return root, parts[depth + 1]
        if part in mapped.get(root, ()):
            return root, part
    return "", None


def _shown_names(mapping: File) -> set[str]:
    try:
        return set(read_host_names(mapping.path).values())
    except (FormatError, OSError):
        return set()


def _placement_by_rank(numbered: NumberedDirectory, table: _RankTable | None) -> RankPlacement:
    entry = next((each for each in table.entries if each.rank == numbered.key), None) if table else None
    if table is None or entry is None:
        return RankPlacement(numbered.key)
    return RankPlacement(numbered.key, entry.host, entry.device, table=table.files)


def _placements_by_device(
    members: list[tuple[str, NumberedDirectory]], table: _RankTable | None
) -> dict[NumberedDirectory, RankPlacement]:
    """Ranks from the table; devices that it lacks get the next numbers by host and device, with a note."""
    known = {(entry.host, entry.device): entry.rank for entry in table.entries} if table else {}
    files = table.files if table else ()
    note = message("not_in_rank_table") if table else message("no_rank_table")
    spare = max(known.values(), default=-1) + 1
    placements: dict[NumberedDirectory, RankPlacement] = {}
    for host, numbered in sorted(members, key=lambda member: (_natural(member[0]), member[1].key)):
        rank = known.get((host, numbered.key))
        placements[numbered] = RankPlacement(
            spare if rank is None else rank, host, numbered.key, note if rank is None else None, files, rank is None
        )
        spare += rank is None
    return placements


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key: host 2 before host 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name)]
