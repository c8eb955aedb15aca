"""Rank tables: which host and device each rank runs on, in the spellings HCCL, its tools and ModelArts use.

    1.0, 1.2     {"server_list": [{"server_id", "device": [{"device_id", "device_ip", "rank_id", …}]}]}
    0.x          {"group_list": [{"instance_list": [{"devices": [{"device_id", "device_ip"}], "server_id", "rank_id",
                 "pod_name"}]}]}; ModelArts' jobstart_hccl.json is one of these

Tables of 1.2 add super_device_id and the like, which say nothing about ranks. In the old tables a rank_id belongs to
an instance (a pod), and the ranks of its devices count on: instances in the order of the number that ends their
pod_name (ModelArts' own rule), else of their rank_id, else as listed. `host_ips_mapping.txt` beside a table
("<address> <name>" per line) gives hosts the name they are shown by.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from paceline.errors import FormatError
from paceline.formats.reader import Part, Section, Sink
from paceline.storage.tree import File, Tree

MAX_BYTES = 4 << 20
MAPPING = "host_ips_mapping.txt"

_HEAD = 4096
_MARKS = (b'"server_list"', b'"group_list"', b'"server_count"')
_POD_NUMBER = re.compile(r"(\d+)$")

Id = str | int


@dataclass(frozen=True, order=True)
class TableEntry:
    rank: int
    host: str
    device: int | None


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


# -- the table --------------------------------------------------------------------------------------------------------


class _Device(msgspec.Struct):
    device_id: Id | None = None
    rank_id: Id | None = None


class _Server(msgspec.Struct):
    server_id: Id = ""
    device: list[_Device] = []


class _Instance(msgspec.Struct):
    server_id: Id = ""
    pod_name: str = ""
    rank_id: Id | None = None
    devices: list[_Device] = []


class _Group(msgspec.Struct):
    instance_list: list[_Instance] = []


class _Table(msgspec.Struct):
    server_list: list[_Server] | None = None
    group_list: list[_Group] | None = None


def read_rank_table(path: Path) -> tuple[TableEntry, ...]:
    """Every rank of a table, by rank."""
    if path.stat().st_size > MAX_BYTES:
        raise FormatError(f"has more than {MAX_BYTES >> 20} MiB; no rank table", file=path)
    try:
        table = msgspec.json.decode(path.read_bytes(), type=_Table)
        entries = [*_of_servers(table.server_list or []), *_of_groups(table.group_list or [])]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise FormatError(f"is no rank table ({error})", file=path) from error
    if not entries:
        raise FormatError("is a rank table without ranks (was the job still starting?)", file=path)
    return tuple(sorted(entries, key=lambda entry: entry.rank))


def _of_servers(servers: list[_Server]) -> Iterator[TableEntry]:
    for server in servers:
        for device in server.device:
            if device.rank_id is None:
                raise ValueError("a device has no rank_id")
            yield TableEntry(int(device.rank_id), str(server.server_id), _number(device.device_id))


def _of_groups(groups: list[_Group]) -> Iterator[TableEntry]:
    """Ranks count on over the instances; a table of single devices may name them itself (and start above 0)."""
    instances = sorted((instance for group in groups for instance in group.instance_list), key=_order)
    devices = [(instance, device) for instance in instances for device in instance.devices]
    single = all(len(instance.devices) == 1 and not instance.pod_name for instance in instances)
    for rank, (instance, device) in enumerate(devices):
        own = _number(device.rank_id if device.rank_id is not None else instance.rank_id if single else None)
        yield TableEntry(rank if own is None else own, str(instance.server_id), _number(device.device_id))


def _order(instance: _Instance) -> int:
    """Python's sort is stable: instances that say nothing stay as listed."""
    pod = _POD_NUMBER.search(instance.pod_name)
    return int(pod[1]) if pod else _number(instance.rank_id) or 0


def _number(value: Id | None) -> int | None:
    return None if value is None or value == "" else int(value)


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
