"""What is known of a cluster's hosts, kept beside what was gathered: who is complete, and whose directory is whose."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import msgspec

from paceline.collect.accounts import Host
from paceline.errors import UsageError
from paceline.rank_tables import generate, write

STATE = ".paceline-collect"
"""Not .json: MindInsight takes the first .json it finds for the rank table."""
MAPPING = "host_ips_mapping.txt"


class HostState(msgspec.Struct, frozen=True):
    """What is known of one host; no password is ever here."""

    name: str
    done: bool = False
    files: int = 0
    bytes: int = 0
    devices: tuple[int, ...] = ()
    reason: str = ""
    number: int = 0
    """Its directory in cluster_profiler, so that addresses need not be shown."""


class State(msgspec.Struct, frozen=True):
    hosts: dict[str, HostState] = {}
    own_table: bool = False
    """hccl.json is ours, to be made anew when hosts join."""
    schema: str = "paceline.collect/1"

    def with_host(self, host: HostState) -> State:
        return msgspec.structs.replace(self, hosts={**self.hosts, host.name: host})


def read_state(target: Path) -> State:
    try:
        state = msgspec.json.decode((target / STATE).read_bytes(), type=State)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        state = State()
    # Without our file (the original script gathered it, or it was lost) the mapping still tells whose directory is whose.
    for name, number in _mapped(target / MAPPING).items():
        if name not in state.hosts:
            state = state.with_host(HostState(name, reason="not gathered yet", number=number))
    return state


def _mapped(path: Path) -> dict[str, int]:
    try:
        words = [line.split() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    except FileNotFoundError:
        return {}
    return {line[0]: int(line[1]) for line in words if len(line) == 2 and line[1].isascii() and line[1].isdecimal()}


def write_state(target: Path, state: State) -> None:
    write_whole(target / STATE, msgspec.json.encode(state).decode() + "\n")


def enlist(known: State, hosts: Sequence[Host]) -> tuple[State, dict[str, Host]]:
    """The state with all these hosts in it, and the hosts by the names they have there.

    A host keeps its directory whoever is asked together with it later: it must not land in another one's.
    """
    named = _names(known, hosts)
    taken = {host.number for host in known.hosts.values()}
    free = (number for number in count(1) if number not in taken)
    for name in named:
        if name not in known.hosts:
            known = known.with_host(HostState(name, reason="not gathered yet", number=next(free)))
    return known, named


def _names(known: State, hosts: Sequence[Host]) -> dict[str, Host]:
    """Address alone as a rank table has it; with the port where several containers share it."""
    times = Counter(host.name for host in hosts)
    named: dict[str, Host] = {}
    for host in hosts:
        name = host.address if times[host.name] > 1 or host.address in known.hosts else host.name
        if name in named:
            raise UsageError(f"{name}: named twice", hint="each host once; containers of one host by their ports")
        named[name] = host
    return named


def mapping_text(hosts: Mapping[str, HostState]) -> str:
    """host_ips_mapping.txt: one "<host> <directory>" per line."""
    return "".join(f"{host.name} {host.number}\n" for host in _in_order(hosts))


def rank_table_text(hosts: Mapping[str, HostState]) -> str:
    """A rank table (1.0) for hosts and devices as found, ranks counted through."""
    return write(generate((host.name, sorted(host.devices)) for host in _in_order(hosts)))


def _in_order(hosts: Mapping[str, HostState]) -> list[HostState]:
    return sorted(hosts.values(), key=lambda host: host.number)


def write_whole(path: Path, text: str) -> None:
    """Whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with partial.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(partial, path)
