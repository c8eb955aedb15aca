"""Rank tables: host and device of every rank, in the formats that HCCL, its tools and ModelArts write.

    1.0, 1.2     {"server_list": [{"server_id", "device": [{"device_id", "device_ip", "rank_id", …}]}]}
    0.x          {"group_list": [{"instance_list": [{"devices": [{"device_id", "device_ip"}], "server_id", "rank_id",
                 "pod_name"}]}]}; ModelArts' jobstart_hccl.json is one of these

Tables of 1.2 add super_device_id and other fields that do not concern ranks. In the old tables a rank_id belongs to an
instance (a pod), and ranks are counted over the devices of all instances: ordered by the number at the end of pod_name
(ModelArts' rule), else by rank_id, else as listed. We always write 1.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import List, Optional, Union

import msgspec

from paceline.core.errors import FormatError, UsageError
from paceline.core.zip_strict import zip_strict

MAX_BYTES = 4 << 20
_POD_NUMBER = re.compile(r"(\d+)$")

Id = Union[str, int]


@dataclass(frozen=True, order=True)
class RankTableEntry:
    rank: int
    host: str
    device: int | None
    address: str = field(default="", compare=False)
    """IP address of the device's network port, not of the host."""


class _Device(msgspec.Struct):
    device_id: Optional[Id] = None
    rank_id: Optional[Id] = None
    device_ip: Optional[str] = None


class _Server(msgspec.Struct):
    server_id: Id = ""
    device: List[_Device] = []


class _Instance(msgspec.Struct):
    server_id: Id = ""
    pod_name: str = ""
    rank_id: Optional[Id] = None
    devices: List[_Device] = []


class _Group(msgspec.Struct):
    instance_list: List[_Instance] = []


class _Table(msgspec.Struct):
    server_list: Optional[List[_Server]] = None
    group_list: Optional[List[_Group]] = None
    status: str = "completed"


def read_rank_table(path: Path) -> tuple[RankTableEntry, ...]:
    """All entries of a table, ordered by rank."""
    table = _decode(path)
    try:
        entries = [*_entries_of_servers(table.server_list or []), *_entries_of_groups(table.group_list or [])]
    except ValueError as error:
        raise FormatError(f"is not a rank table ({error})", file=path) from error
    if not entries:
        raise FormatError("is a rank table without ranks (was it copied while the job was starting?)", file=path)
    return tuple(sorted(entries, key=lambda entry: entry.rank))


def is_complete_rank_table(path: Path) -> bool:
    """Whether all hosts are in the table: ModelArts writes it while hosts still join, and sets its status at the end."""
    return _decode(path).status == "completed"


def check_rank_table(entries: Sequence[RankTableEntry], where: str) -> None:
    """Raise FormatError unless a job can start from this table: ranks 0 … n-1, each on its own device."""
    ranks = [entry.rank for entry in entries]
    if ranks != list(range(len(ranks))):
        raise FormatError(f"{where}: ranks are not 0 … {len(ranks) - 1}, each once (found {_shown(ranks)})")
    devices = [(entry.host, entry.device) for entry in entries]
    shared = next((device for device in devices if devices.count(device) > 1), None)
    if shared:
        raise FormatError(f"{where}: two ranks on device {shared[1]} of host {shared[0]}")
    incomplete = next((entry.rank for entry in entries if entry.device is None or not entry.host), None)
    if incomplete is not None:
        raise FormatError(f"{where}: rank {incomplete} has no host or no device")


def generate_rank_table(
    hosts: Iterable[tuple[str, Sequence[int]]], addresses: Sequence[str] = ()
) -> tuple[RankTableEntry, ...]:
    """Number the devices of all hosts in the order given; `addresses` in the same order, or none."""
    numbered = [(host, device) for host, devices in hosts for device in devices]
    if addresses and len(addresses) != len(numbered):
        raise UsageError(
            f"{len(addresses)} device addresses for {len(numbered)} devices", hint="pass one per device, or none"
        )
    device_ips = addresses or [""] * len(numbered)
    entries = tuple(
        RankTableEntry(rank, host, device, address)
        for rank, ((host, device), address) in enumerate(zip_strict(numbered, device_ips))
    )
    check_rank_table(entries, "rank table")
    return entries


def merge_rank_tables(tables: Iterable[Sequence[RankTableEntry]]) -> tuple[RankTableEntry, ...]:
    """Join the tables of several hosts in the order given, and renumber the ranks."""
    entries = [entry for table in tables for entry in table]
    merged = tuple(replace(entry, rank=rank) for rank, entry in enumerate(entries))
    check_rank_table(merged, "merged rank table")
    return merged


def rank_table_json(entries: Sequence[RankTableEntry]) -> str:
    """The table as JSON, version 1.0, which HCCL and MindSpore read."""
    servers: dict[str, list[dict[str, str]]] = {}
    for entry in sorted(entries):
        card = {"device_id": str(entry.device), "device_ip": entry.address, "rank_id": str(entry.rank)}
        servers.setdefault(entry.host, []).append(card)
    listed = [{"server_id": host, "device": cards, "host_nic_ip": "reserve"} for host, cards in servers.items()]
    table = {"version": "1.0", "server_count": str(len(servers)), "server_list": listed, "status": "completed"}
    return json.dumps(table, indent=2) + "\n"


def _decode(path: Path) -> _Table:
    if path.stat().st_size > MAX_BYTES:
        raise FormatError(f"is larger than {MAX_BYTES >> 20} MiB, so it is not a rank table", file=path)
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Table)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise FormatError(f"is not a rank table ({error})", file=path) from error


def _entries_of_servers(servers: list[_Server]) -> Iterator[RankTableEntry]:
    for server in servers:
        for device in server.device:
            if device.rank_id is None:
                raise ValueError("a device has no rank_id")
            number = _number(device.device_id)
            yield RankTableEntry(int(device.rank_id), str(server.server_id), number, device.device_ip or "")


def _entries_of_groups(groups: list[_Group]) -> Iterator[RankTableEntry]:
    """Ranks are counted over all instances; instances with a single device may have ranks of their own (from any number)."""
    instances = sorted((instance for group in groups for instance in group.instance_list), key=_order)
    devices = [(instance, device) for instance in instances for device in instance.devices]
    single = all(len(instance.devices) == 1 and not instance.pod_name for instance in instances)
    for rank, (instance, device) in enumerate(devices):
        own = _number(device.rank_id if device.rank_id is not None else instance.rank_id if single else None)
        number = _number(device.device_id)
        yield RankTableEntry(rank if own is None else own, str(instance.server_id), number, device.device_ip or "")


def _order(instance: _Instance) -> int:
    """Sort key of an instance; equal keys keep the listed order."""
    pod = _POD_NUMBER.search(instance.pod_name)
    return int(pod[1]) if pod else _number(instance.rank_id) or 0


def _number(value: Id | None) -> int | None:
    return None if value is None or value == "" else int(value)


def _shown(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
