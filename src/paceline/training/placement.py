"""Which ranks run on this host, and where the others meet them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import FormatError, UsageError
from paceline.rank_tables import TableEntry, check, is_complete, read_rank_table

MASTER_PORT = 29500
"""Where several hosts meet unless told otherwise; one host alone takes any free port."""
PLATFORM_TABLE = "jobstart_hccl.json"


@dataclass(frozen=True)
class RankPlace:
    rank: int
    local_rank: int
    device: int


@dataclass(frozen=True)
class Placement:
    """Of one host: its own ranks, and what they need to know of the whole job."""

    here: tuple[RankPlace, ...]
    world_size: int
    master_address: str = "127.0.0.1"
    master_port: int = MASTER_PORT
    node: int = 0
    nodes: int = 1


@dataclass(frozen=True)
class Nodes:
    """How many hosts there are, which one this is, and where rank 0 is reached."""

    count: int = 1
    rank: int = 0
    master_address: str | None = None
    master_port: int | None = None


def even(ranks: int, nodes: Nodes) -> Placement:
    """The same number of ranks on every host, devices counted from 0."""
    if ranks < 1 or nodes.count < 1:
        raise UsageError(f"{ranks} ranks on {nodes.count} hosts: nothing to start", hint="at least one of each")
    if not 0 <= nodes.rank < nodes.count:
        raise UsageError(f"node rank {nodes.rank} of {nodes.count} nodes", hint=f"0 … {nodes.count - 1}")
    if nodes.count > 1 and not nodes.master_address:
        raise UsageError("several nodes need --master-addr", hint="the address of node 0, the same on every node")
    first = nodes.rank * ranks
    here = tuple(RankPlace(first + local, local, local) for local in range(ranks))
    return Placement(here, ranks * nodes.count, *_meeting(nodes), nodes.rank, nodes.count)


def of_table(path: Path, nodes: Nodes, *, named: bool) -> Placement:
    """As a rank table says; `named`: this host is node `nodes.rank` of the table, else it is looked for."""
    entries = read_rank_table(path)
    check(entries, str(path))
    hosts = list(dict.fromkeys(entry.host for entry in entries))
    node = nodes.rank if named or len(hosts) == 1 else _own(hosts, path)
    if not 0 <= node < len(hosts):
        raise UsageError(f"node rank {node}: {path} has {len(hosts)} hosts")
    own = [entry for entry in entries if entry.host == hosts[node]]
    here = tuple(RankPlace(entry.rank, local, _device(entry)) for local, entry in enumerate(own))
    address = nodes.master_address or (hosts[0] if len(hosts) > 1 else "127.0.0.1")
    met = _meeting(Nodes(len(hosts), node, address, nodes.master_port))
    return Placement(here, len(entries), *met, node, len(hosts))


def on_modelarts(environ: Mapping[str, str]) -> tuple[int, Nodes] | None:
    """Ranks of each host and the hosts of a ModelArts job, from what the platform sets; None elsewhere."""
    if "MA_NUM_HOSTS" not in environ and "VC_WORKER_NUM" not in environ:
        return None
    count = _count(environ, "MA_NUM_HOSTS", "VC_WORKER_NUM")
    cards = _count(environ, "MA_NUM_GPUS", "NPU_NUM")
    index = environ.get("VC_TASK_INDEX") or _pod_number(environ.get("MA_CURRENT_INSTANCE_NAME", "")) or "0"
    if not index.isdigit():
        raise UsageError(f"VC_TASK_INDEX={index[:40]!r} is no number", hint="unset it, or give --node-rank yourself")
    first = environ.get("VC_WORKER_HOSTS", "").split(",")[0].strip()
    if count > 1 and not first:
        raise UsageError(
            f"a ModelArts job of {count} hosts without VC_WORKER_HOSTS", hint="give --master-addr yourself"
        )
    return cards, Nodes(count, int(index), first or None)


def meet_where_the_platform_says(environ: MutableMapping[str, str]) -> None:
    """For torch on ModelArts' own ranks, which know their number but not where to meet."""
    if "MASTER_ADDR" in environ:
        return
    platform = on_modelarts(environ)
    if platform is None:
        raise UsageError("several ranks without MASTER_ADDR", hint="start them with paceline launch, or torchrun")
    environ["MASTER_ADDR"] = platform[1].master_address or "127.0.0.1"
    environ.setdefault("MASTER_PORT", str(MASTER_PORT))


def platform_table(environ: Mapping[str, str]) -> Path | None:
    """ModelArts' own rank table; RANK_TABLE_FILE names its directory at first."""
    named = environ.get("RANK_TABLE_FILE")
    if not named:
        return None
    path = Path(named)
    return path / PLATFORM_TABLE if path.is_dir() or not path.suffix else path


def wait_for_table(path: Path, timeout: float) -> tuple[TableEntry, ...]:
    """The platform writes the table while hosts still come: wait until it says "completed", but not for ever."""
    until = time.monotonic() + timeout
    while True:
        try:
            if path.exists() and is_complete(path):
                entries = read_rank_table(path)
                check(entries, str(path))
                return entries
        except FormatError:
            if time.monotonic() >= until:
                raise
            # Half-written: look again.
        if time.monotonic() >= until:
            state = "its status is not completed" if path.exists() else "it is not there"
            raise UsageError(
                f"{path}: waited {timeout:.0f} s for the rank table; {state}",
                hint="some host of the job did not come up; see the platform's events",
            )
        time.sleep(min(0.5, timeout / 10 + 0.01))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _meeting(nodes: Nodes) -> tuple[str, int]:
    if nodes.count == 1:
        return nodes.master_address or "127.0.0.1", nodes.master_port or free_port()
    return nodes.master_address or "127.0.0.1", nodes.master_port or MASTER_PORT


def _own(hosts: Sequence[str], path: Path) -> int:
    names = {socket.gethostname(), os.environ.get("MA_CURRENT_HOST_IP"), os.environ.get("MA_CURRENT_IP")}
    try:
        names.update(str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None))
    except OSError:
        pass  # a host that does not know its own name: it may still be named by the platform
    found = [number for number, host in enumerate(hosts) if host in names]
    if len(found) != 1:
        raise UsageError(f"{path}: which of its {len(hosts)} hosts is this one?", hint="say it: --node-rank N")
    return found[0]


def _device(entry: TableEntry) -> int:
    assert entry.device is not None  # checked with the table
    return entry.device


def _count(environ: Mapping[str, str], *names: str) -> int:
    for name in names:
        if environ.get(name, "").isdigit() and int(environ[name]) > 0:
            return int(environ[name])
    return 1


def _pod_number(pod: str) -> str | None:
    number = pod.rpartition("-")[2]
    return number if number.isdigit() else None
