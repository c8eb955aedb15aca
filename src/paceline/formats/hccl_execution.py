"""One execution of a collective as HCCL recorded it, whichever file told it, and the rows it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.formats.collective_names import op_of
from paceline.formats.reader import Sink

PARSER_LIMIT = 500
"""Vendor parsers stop after this many executions of a device, over all operators, in time order."""

POINT_TO_POINT = frozenset({"send", "receive", "send_receive"})


@dataclass(frozen=True)
class Link:
    """What one execution moved between two ranks, numbered inside their communicator."""

    src: int
    dst: int
    transport: str
    bytes: int | None
    duration: int
    wait: int = 0


@dataclass(frozen=True)
class Packet:
    transport: str
    packet_bytes: int
    count: int
    duration: int


@dataclass(frozen=True)
class Execution:
    """Times in ns; None where the source does not tell."""

    name: str
    op: str
    sequence: int
    step: int | None = None
    start: int | None = None
    duration: int | None = None
    transit: int | None = None
    wait: int | None = None
    sync: int | None = None
    links: tuple[Link, ...] = ()
    packets: tuple[Packet, ...] = ()

    @property
    def idle(self) -> int | None:
        """idle = duration - transit - wait, where the three fit together."""
        if self.duration is None or self.transit is None or self.wait is None:
            return None
        rest = self.duration - self.transit - self.wait
        return rest if rest >= 0 else None

    @property
    def bytes(self) -> int | None:
        """Σ bytes over the links to other ranks; None when no link or a link of unknown size was recorded."""
        sizes = [link.bytes for link in self.links if link.transport != "LOCAL"]
        known = [size for size in sizes if size is not None]
        return sum(known) if self.links and len(known) == len(sizes) else None

    def at(self, *, start: int, end: int) -> Execution:
        return replace(self, start=start, duration=end - start)


def transport_of(recorded: str, src: int, dst: int, op: str) -> str:
    """A copy inside one card is LOCAL, however it was made.

    Not so for point-to-point operators: there src counts inside the pair and dst inside the stage, so that "1-1" on
    a Receive is real traffic from another card (seen in real recordings).
    """
    return "LOCAL" if src == dst and op not in POINT_TO_POINT else recorded


@dataclass(frozen=True)
class Neighbours:
    """What is known about the communicators of one rank."""

    group: str | None = None
    """Communicator of everything but send and receive; links are translated through it."""
    peer: int | None = None
    """Global rank on the other side of send and receive."""

    def group_of(self, op: str) -> str | None:
        return None if op in POINT_TO_POINT else self.group

    def peer_of(self, op: str) -> int | None:
        return self.peer if op in POINT_TO_POINT else None


def add_executions(executions: Sequence[Execution], near: Neighbours, sink: Sink) -> None:
    """Rows of collectives, transfers and packets."""
    sink.add("collectives", {
        "step": [one.step for one in executions],
        "group": [near.group_of(one.op) for one in executions],
        "op": [one.op for one in executions],
        "name": [one.name for one in executions],
        "sequence": [one.sequence for one in executions],
        "peer": [near.peer_of(one.op) for one in executions],
        "start": [one.start for one in executions],
        "duration": [one.duration for one in executions],
        "transit": [one.transit for one in executions],
        "wait": [one.wait for one in executions],
        "sync": [one.sync for one in executions],
        "idle": [one.idle for one in executions],
        "bytes": [one.bytes for one in executions],
    })  # fmt: skip
    if sink.wants("transfers"):
        add_links([(one, link) for one in executions for link in one.links], near, sink)
    if sink.wants("packets"):
        _add_packets([(one, packet) for one in executions for packet in one.packets], near, sink)


def add_links(links: Sequence[tuple[Execution, Link]], near: Neighbours, sink: Sink) -> None:
    sink.add("transfers", {
        **_owner([one for one, _ in links], near),
        "src": [link.src for _, link in links],
        "dst": [link.dst for _, link in links],
        "scope": ["group"] * len(links),
        "transport": [link.transport for _, link in links],
        "bytes": [link.bytes for _, link in links],
        "duration": [link.duration for _, link in links],
        "wait": [link.wait for _, link in links],
    })  # fmt: skip


def add_step_links(step: int | None, links: Sequence[Link], sink: Sink) -> None:
    """Links of a whole step, where the operators they belong to were not recorded."""
    sink.add("transfers", {
        "step": [step] * len(links),
        "src": [link.src for link in links],
        "dst": [link.dst for link in links],
        "scope": ["group"] * len(links),
        "transport": [link.transport for link in links],
        "bytes": [link.bytes for link in links],
        "duration": [link.duration for link in links],
        "wait": [link.wait for link in links],
    })  # fmt: skip


def _add_packets(packets: Sequence[tuple[Execution, Packet]], near: Neighbours, sink: Sink) -> None:
    sink.add("packets", {
        **_owner([one for one, _ in packets], near),
        "transport": [packet.transport for _, packet in packets],
        "packet_bytes": [packet.packet_bytes for _, packet in packets],
        "count": [packet.count for _, packet in packets],
        "duration": [packet.duration for _, packet in packets],
    })  # fmt: skip


def _owner(owners: Sequence[Execution], near: Neighbours) -> dict[str, list[object]]:
    return {
        "step": [one.step for one in owners],
        "group": [near.group_of(one.op) for one in owners],
        "name": [one.name for one in owners],
        "sequence": [one.sequence for one in owners],
    }


def op_named(*names: str) -> str:
    """The first name that tells what the operator is."""
    return next((op for op in map(op_of, names) if op != "other"), "other")
