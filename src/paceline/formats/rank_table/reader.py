"""Reader of rank tables (paceline.core.rank_tables): which host and device each rank runs on.

`host_ips_mapping.txt` in the same directory ("<address> <name>" per line) gives the display names of hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.core.rank_tables import MAX_BYTES, RankTableEntry, read_rank_table
from paceline.formats.base import RankRecording, RecordingSection, Sink
from paceline.formats.rank_table import FORMAT, HOST_NAMES
from paceline.storage.file_tree import File, Tree

_HEAD = 4096
_MARKS = (b'"server_list"', b'"group_list"', b'"server_count"')


@dataclass(frozen=True)
class RankTableReader:
    """One recording per rank table, of no rank."""

    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        for file in rank_table_files(tree):
            mapping = tree.directories[file.directory].get(HOST_NAMES)
            files = (file, mapping) if mapping else (file,)
            read = partial(_read, file.path, mapping.path if mapping else None)
            section = RecordingSection("rank table", frozenset({"ranks"}), files, read)
            yield RankRecording(self.name, None, file.relative, (section,))


READER = RankTableReader()


def rank_table_files(tree: Tree) -> list[File]:
    """JSON files that look like rank tables, whatever their names."""
    return [
        file
        for file in tree.files
        if FORMAT.files.matches(file.relative) and 0 < file.size < MAX_BYTES and _looks_like_table(file.path)
    ]


def _looks_like_table(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False  # removed or locked since the tree was listed
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and any(mark in head for mark in _MARKS)


def _read(path: Path, mapping: Path | None, sink: Sink) -> None:
    entries = with_host_names(read_rank_table(path), read_host_names(mapping) if mapping else {})
    ranks = [entry.rank for entry in entries]
    if len(set(ranks)) < len(ranks):
        raise FormatError(message("rank_twice"), file=path)
    sink.add(
        "ranks",
        {
            "rank": ranks,
            "host": [entry.host for entry in entries],
            "device": [entry.device for entry in entries],
        },
    )


# -- host names -------------------------------------------------------------------------------------------------------


def read_host_names(path: Path) -> dict[str, str]:
    """address → display name; lines without both are ignored."""
    if path.stat().st_size > MAX_BYTES:
        raise FormatError(message("not_hosts", size=f"{MAX_BYTES >> 20} MiB"), file=path)
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise FormatError(message("not_utf8_text"), file=path) from error
    words = (line.split() for line in lines)
    return {pair[0]: pair[1] for pair in words if len(pair) >= 2}


def with_host_names(entries: tuple[RankTableEntry, ...], names: dict[str, str]) -> tuple[RankTableEntry, ...]:
    return tuple(replace(entry, host=names.get(entry.host, entry.host)) for entry in entries)
