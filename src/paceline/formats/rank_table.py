"""The reader of rank tables (see paceline.rank_tables): which host and device each rank runs on.

`host_ips_mapping.txt` beside a table ("<address> <name>" per line) gives hosts the name they are shown by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from paceline.errors import FormatError
from paceline.formats.reader import Part, Section, Sink
from paceline.rank_tables import MAX_BYTES, TableEntry, read_rank_table
from paceline.storage.tree import File, Tree

MAPPING = "host_ips_mapping.txt"

_HEAD = 4096
_MARKS = (b'"server_list"', b'"group_list"', b'"server_count"')


@dataclass(frozen=True)
class RankTable:
    """The reader: one part per table file."""

    name: str = "rank-table"

    def find(self, tree: Tree) -> Iterator[Part]:
        for file in rank_table_files(tree):
            mapping = tree.directories[file.directory].get(MAPPING)
            files = (file, mapping) if mapping else (file,)
            read = partial(_read, file.path, mapping.path if mapping else None)
            section = Section("rank table", frozenset({"ranks"}), files, read)
            yield Part(self.name, None, file.relative, (section,))


READER = RankTable()


def rank_table_files(tree: Tree) -> list[File]:
    """JSON files that look like rank tables, under any name."""
    return [
        file
        for file in tree.files
        if file.relative.endswith(".json") and 0 < file.size < MAX_BYTES and _looks_like_table(file.path)
    ]


def _looks_like_table(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False  # gone or locked since the walk: nothing a search for tables can do about it
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and any(mark in head for mark in _MARKS)


def _read(path: Path, mapping: Path | None, sink: Sink) -> None:
    entries = with_names(read_rank_table(path), read_mapping(mapping) if mapping else {})
    ranks = [entry.rank for entry in entries]
    if len(set(ranks)) < len(ranks):
        raise FormatError("gives one rank to two devices", file=path)
    sink.add("ranks", {
        "rank": ranks, "host": [entry.host for entry in entries], "device": [entry.device for entry in entries],
    })  # fmt: skip


# -- names of hosts ---------------------------------------------------------------------------------------------------


def read_mapping(path: Path) -> dict[str, str]:
    """address → shown name; lines without both are passed over."""
    if path.stat().st_size > MAX_BYTES:
        raise FormatError(f"has more than {MAX_BYTES >> 20} MiB; no list of hosts", file=path)
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise FormatError("is not UTF-8 text", file=path) from error
    words = (line.split() for line in lines)
    return {pair[0]: pair[1] for pair in words if len(pair) >= 2}


def with_names(entries: tuple[TableEntry, ...], names: dict[str, str]) -> tuple[TableEntry, ...]:
    return tuple(replace(entry, host=names.get(entry.host, entry.host)) for entry in entries)
