"""Which ranks run on this host, and the rendezvous address of the job."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import FormatError, UsageError
from paceline.core.rank_tables import RankTableEntry, check_rank_table, is_complete_rank_table, read_rank_table

MASTER_PORT = 29500
"""Default rendezvous port of several hosts; a single host uses any free port."""
PLATFORM_TABLE = "jobstart_hccl.json"


@dataclass(frozen=True)
class RankPlace:
    rank: int
    local_rank: int
    device: int


@dataclass(frozen=True)
class Placement:
    """The ranks of one host, and what they need to know about the job."""

    here: tuple[RankPlace, ...]
    world_size: int
    master_address: str = "127.0.0.1"
    master_port: int = MASTER_PORT
    node: int = 0
    nodes: int = 1


@dataclass(frozen=True)
class Nodes:
    """Number of hosts, index of this host, and address of rank 0."""

    count: int = 1
    rank: int = 0
    master_address: str | None = None
    master_port: int | None = None


def place_evenly(ranks: int, nodes: Nodes) -> Placement:
    """The same number of ranks on every host, devices counted from 0."""
    if ranks < 1 or nodes.count < 1:
        raise UsageError(f"cannot start {ranks} ranks on {nodes.count} hosts", hint="at least one of each")
    if not 0 <= nodes.rank < nodes.count:
        raise UsageError(f"invalid node rank {nodes.rank} of {nodes.count} nodes", hint=f"0 … {nodes.count - 1}")
    if nodes.count > 1 and not nodes.master_address:
        raise UsageError("several nodes need --master-addr", hint="pass the address of node 0, the same on every node")
    first = nodes.rank * ranks
    here = tuple(RankPlace(first + local, local, local) for local in range(ranks))
    return Placement(here, ranks * nodes.count, *_rendezvous(nodes), nodes.rank, nodes.count)


def place_by_table(path: Path, nodes: Nodes, *, named: bool) -> Placement:
    """Placement from a rank table. named: this host is node `nodes.rank` of the table, else it is found by address."""
    entries = read_rank_table(path)
    check_rank_table(entries, str(path))
    hosts = list(dict.fromkeys(entry.host for entry in entries))
    node = nodes.rank if named or len(hosts) == 1 else _find_this_host(hosts, path)
    if not 0 <= node < len(hosts):
        raise UsageError(f"invalid node rank {node}: {path} has {len(hosts)} hosts")
    own = [entry for entry in entries if entry.host == hosts[node]]
    here = tuple(RankPlace(entry.rank, local, _device(entry)) for local, entry in enumerate(own))
    address = nodes.master_address or (hosts[0] if len(hosts) > 1 else "127.0.0.1")
    rendezvous = _rendezvous(Nodes(len(hosts), node, address, nodes.master_port))
    return Placement(here, len(entries), *rendezvous, node, len(hosts))


def modelarts_nodes(environ: Mapping[str, str]) -> tuple[int, Nodes] | None:
    """Ranks per host and hosts of a ModelArts job, from its environment variables; None elsewhere."""
    if "MA_NUM_HOSTS" not in environ and "VC_WORKER_NUM" not in environ:
        return None
    count = _count(environ, "MA_NUM_HOSTS", "VC_WORKER_NUM")
    cards = _count(environ, "MA_NUM_GPUS", "NPU_NUM")
    index = environ.get("VC_TASK_INDEX") or _pod_number(environ.get("MA_CURRENT_INSTANCE_NAME", "")) or "0"
    if not index.isdigit():
        raise UsageError(f"VC_TASK_INDEX={index[:40]!r} is not a number", hint="unset it, or pass --node-rank")
    first = environ.get("VC_WORKER_HOSTS", "").split(",")[0].strip()
    if count > 1 and not first:
        raise UsageError(f"VC_WORKER_HOSTS is not set in a ModelArts job of {count} hosts", hint="pass --master-addr")
    return cards, Nodes(count, int(index), first or None)


def rendezvous_from_env(environ: MutableMapping[str, str]) -> None:
    """Set MASTER_ADDR and MASTER_PORT for torch ranks that ModelArts started without them."""
    if "MASTER_ADDR" in environ:
        return
    platform = modelarts_nodes(environ)
    if platform is None:
        raise UsageError("MASTER_ADDR is not set", hint="start several ranks with paceline launch or torchrun")
    environ["MASTER_ADDR"] = platform[1].master_address or "127.0.0.1"
    environ.setdefault("MASTER_PORT", str(MASTER_PORT))


def modelarts_table_path(environ: Mapping[str, str]) -> Path | None:
    """Path of ModelArts' rank table; RANK_TABLE_FILE may name its directory."""
    named = environ.get("RANK_TABLE_FILE")
    if not named:
        return None
    path = Path(named)
    return path / PLATFORM_TABLE if path.is_dir() or not path.suffix else path


def wait_for_table(path: Path, timeout: float) -> tuple[RankTableEntry, ...]:
    """Wait until the platform has completed the rank table, which it writes while hosts start."""
    until = time.monotonic() + timeout
    while True:
        try:
            if path.exists() and is_complete_rank_table(path):
                entries = read_rank_table(path)
                check_rank_table(entries, str(path))
                return entries
        except FormatError:
            if time.monotonic() >= until:
                raise
            # Half-written: read it again.
        if time.monotonic() >= until:
            state = "its status is not completed" if path.exists() else "file not found"
            raise UsageError(
                f"{path}: rank table not ready after {timeout:.0f} s: {state}",
                hint="a host of the job may not have started; see the platform's events",
            )
        time.sleep(min(0.5, timeout / 10 + 0.01))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _rendezvous(nodes: Nodes) -> tuple[str, int]:
    if nodes.count == 1:
        return nodes.master_address or "127.0.0.1", nodes.master_port or free_port()
    return nodes.master_address or "127.0.0.1", nodes.master_port or MASTER_PORT


def _find_this_host(hosts: Sequence[str], path: Path) -> int:
    names = {socket.gethostname(), os.environ.get("MA_CURRENT_HOST_IP"), os.environ.get("MA_CURRENT_IP")}
    try:
        names.update(str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None))
    except OSError:
        pass  # its name cannot be resolved; the platform's variables may still identify it
    found = [number for number, host in enumerate(hosts) if host in names]
    if len(found) != 1:
        raise UsageError(
            f"{path}: none or several of its {len(hosts)} hosts match this machine", hint="pass --node-rank N"
        )
    return found[0]


def _device(entry: RankTableEntry) -> int:
    assert entry.device is not None  # checked by check()
    return entry.device


def _count(environ: Mapping[str, str], *names: str) -> int:
    for name in names:
        if environ.get(name, "").isdigit() and int(environ[name]) > 0:
            return int(environ[name])
    return 1


def _pod_number(pod: str) -> str | None:
    number = pod.rpartition("-")[2]
    return number if number.isdigit() else None
