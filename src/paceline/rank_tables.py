"""Rank tables: which host and device each rank runs on, in the spellings HCCL, its tools and ModelArts use.

    1.0, 1.2     {"server_list": [{"server_id", "device": [{"device_id", "device_ip", "rank_id", …}]}]}
    0.x          {"group_list": [{"instance_list": [{"devices": [{"device_id", "device_ip"}], "server_id", "rank_id",
                 "pod_name"}]}]}; ModelArts' jobstart_hccl.json is one of these

Tables of 1.2 add super_device_id and the like, which say nothing about ranks. In the old tables a rank_id belongs to
an instance (a pod), and the ranks of its devices count on: instances in the order of the number that ends their
pod_name (ModelArts' own rule), else of their rank_id, else as listed. What is written is always 1.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from paceline.errors import FormatError, UsageError

MAX_BYTES = 4 << 20
_POD_NUMBER = re.compile(r"(\d+)$")

Id = str | int


@dataclass(frozen=True, order=True)
class TableEntry:
    rank: int
    host: str
    device: int | None
    address: str = field(default="", compare=False)
    """Of the device's own network port; not of the host."""


class _Device(msgspec.Struct):
    device_id: Id | None = None
    rank_id: Id | None = None
    device_ip: str | None = None


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
    status: str = "completed"


def read_rank_table(path: Path) -> tuple[TableEntry, ...]:
    """Every rank of a table, by rank."""
    table = _decode(path)
    try:
        entries = [*_of_servers(table.server_list or []), *_of_groups(table.group_list or [])]
    except ValueError as error:
        raise FormatError(f"is no rank table ({error})", file=path) from error
    if not entries:
        raise FormatError("is a rank table without ranks (was the job still starting?)", file=path)
    return tuple(sorted(entries, key=lambda entry: entry.rank))


def is_complete(path: Path) -> bool:
    """ModelArts writes the table while hosts still come; only its status says that nobody is missing."""
    return _decode(path).status == "completed"


def check(entries: Sequence[TableEntry], where: str) -> None:
    """A table a job can start from: ranks 0 … n-1, each on a device of its own."""
    ranks = [entry.rank for entry in entries]
    if ranks != list(range(len(ranks))):
        raise FormatError(f"{where}: ranks are not 0 … {len(ranks) - 1}, each once (found {_shown(ranks)})")
    places = [(entry.host, entry.device) for entry in entries]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice:
        raise FormatError(f"{where}: two ranks on device {twice[1]} of host {twice[0]}")
    nameless = next((entry.rank for entry in entries if entry.device is None or not entry.host), None)
    if nameless is not None:
        raise FormatError(f"{where}: rank {nameless} has no host or no device")


def generate(hosts: Iterable[tuple[str, Sequence[int]]], addresses: Sequence[str] = ()) -> tuple[TableEntry, ...]:
    """Ranks counted through the hosts' devices in the order given; `addresses` in the same order, or none."""
    places = [(host, device) for host, devices in hosts for device in devices]
    if addresses and len(addresses) != len(places):
        raise UsageError(f"{len(addresses)} device addresses for {len(places)} devices", hint="one for each, or none")
    named = addresses or [""] * len(places)
    entries = tuple(
        TableEntry(rank, host, device, address)
        for rank, ((host, device), address) in enumerate(zip(places, named, strict=True))
    )
    check(entries, "rank table")
    return entries


def merge(tables: Iterable[Sequence[TableEntry]]) -> tuple[TableEntry, ...]:
    """One table of several hosts' own: in the order given, ranks renumbered."""
    entries = [entry for table in tables for entry in table]
    merged = tuple(replace(entry, rank=rank) for rank, entry in enumerate(entries))
    check(merged, "merged rank table")
    return merged


def write(entries: Sequence[TableEntry]) -> str:
    """Version 1.0, as HCCL and MindSpore read it."""
    servers: dict[str, list[dict[str, str]]] = {}
    for entry in sorted(entries):
        card = {"device_id": str(entry.device), "device_ip": entry.address, "rank_id": str(entry.rank)}
        servers.setdefault(entry.host, []).append(card)
    listed = [{"server_id": host, "device": cards, "host_nic_ip": "reserve"} for host, cards in servers.items()]
    table = {"version": "1.0", "server_count": str(len(servers)), "server_list": listed, "status": "completed"}
    return json.dumps(table, indent=2) + "\n"


def _decode(path: Path) -> _Table:
    if path.stat().st_size > MAX_BYTES:
        raise FormatError(f"has more than {MAX_BYTES >> 20} MiB; no rank table", file=path)
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Table)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise FormatError(f"is no rank table ({error})", file=path) from error


def _of_servers(servers: list[_Server]) -> Iterator[TableEntry]:
    for server in servers:
        for device in server.device:
            if device.rank_id is None:
                raise ValueError("a device has no rank_id")
            number = _number(device.device_id)
            yield TableEntry(int(device.rank_id), str(server.server_id), number, device.device_ip or "")


def _of_groups(groups: list[_Group]) -> Iterator[TableEntry]:
    """Ranks count on over the instances; a table of single devices may name them itself (and start above 0)."""
    instances = sorted((instance for group in groups for instance in group.instance_list), key=_order)
    devices = [(instance, device) for instance in instances for device in instance.devices]
    single = all(len(instance.devices) == 1 and not instance.pod_name for instance in instances)
    for rank, (instance, device) in enumerate(devices):
        own = _number(device.rank_id if device.rank_id is not None else instance.rank_id if single else None)
        number = _number(device.device_id)
        yield TableEntry(rank if own is None else own, str(instance.server_id), number, device.device_ip or "")


def _order(instance: _Instance) -> int:
    """Python's sort is stable: instances that say nothing stay as listed."""
    pod = _POD_NUMBER.search(instance.pod_name)
    return int(pod[1]) if pod else _number(instance.rank_id) or 0


def _number(value: Id | None) -> int | None:
    return None if value is None or value == "" else int(value)


def _shown(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
