"""One execution of a collective as HCCL recorded it, and its rows in collectives, transfers and packets."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from paceline.formats.base import Sink

PARSER_LIMIT = 500
"""The vendor's parsers stop after this many executions per device, over all operators, in order of time."""

_NUMBER = re.compile(r"-op(\d{1,9})(?!\d)")

_MAX_EXECUTIONS = 9 * 10**8
"""Keeps a sequence within 64 bits; no recording has as many."""

POINT_TO_POINT = frozenset({"send", "receive", "send_receive"})


class LinkTransfer(msgspec.Struct, frozen=True):
    """What one execution moved between two ranks; ranks are numbers inside the communicator."""

    src: int
    dst: int
    transport: str
    bytes: int | None
    duration: int
    wait: int = 0


class PacketCount(msgspec.Struct, frozen=True):
    transport: str
    packet_bytes: int
    count: int
    duration: int


class CollectiveExecution(msgspec.Struct, frozen=True):
    """Times in ns; None if not recorded."""

    name: str
    op: str
    sequence: int
    step: int | None = None
    start: int | None = None
    duration: int | None = None
    transit: int | None = None
    wait: int | None = None
    sync: int | None = None
    links: tuple[LinkTransfer, ...] = ()
    packets: tuple[PacketCount, ...] = ()

    @property
    def idle(self) -> int | None:
        """idle = duration - transit - wait; None if that is negative."""
        if self.duration is None or self.transit is None or self.wait is None:
            return None
        rest = self.duration - self.transit - self.wait
        return rest if rest >= 0 else None

    @property
    def bytes(self) -> int | None:
        """Σ bytes over the links to other ranks; None if no such link, or one of unknown size, was recorded.

        A card whose neighbours write down both of its links records only copies inside itself: what it moved is unknown.
        """
        sizes = [link.bytes for link in self.links if link.transport != "LOCAL"]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(sizes) else None

    def at(self, *, start: int, end: int) -> CollectiveExecution:
        return msgspec.structs.replace(self, start=start, duration=end - start)


def transport_of(recorded: str, src: int, dst: int, op: str) -> str:
    """LOCAL for a copy inside one card, whatever transport was recorded.

    Except for point-to-point operators: there src is numbered inside the pair and dst inside the stage, so that "1-1" of
    a Receive is traffic from another card (seen in real recordings).
    """
    return "LOCAL" if src == dst and op not in POINT_TO_POINT else recorded


@dataclass(frozen=True)
class RankCommunicators:
    """What is known about the communicators of one rank."""

    rank: int
    index: int | None = None
    """Number of this rank inside its stage."""
    group: str | None = None
    """Communicator of all operators except send and receive: the stage. The Run translates links with it."""
    peer: int | None = None
    """Global rank of the partner of send and receive, if there are two stages."""

    @property
    def pair(self) -> str | None:
        """Communicator of send and receive."""
        return None if self.peer is None else f"p2p{min(self.rank, self.peer)}-{max(self.rank, self.peer)}"

    def group_of(self, op: str) -> str | None:
        return self.pair if op in POINT_TO_POINT else self.group

    def peer_of(self, op: str) -> int | None:
        return self.peer if op in POINT_TO_POINT else None

    def sequence_of(self, one: CollectiveExecution) -> int:
        """n for the n-th execution of that name; inside a known group, where several names have the same op,

            sequence = n · 10^10 + number of the operator in the graph

        because (group, op, sequence) must identify one collective. Ranks of a stage run the same graph but not in the
        same order (streams overtake each other), so that counting in order of time would match wrong ones.
        """
        if self.group is None or one.sequence >= _MAX_EXECUTIONS:
            return one.sequence
        numbered = _NUMBER.search(one.name)
        return one.sequence * 10**10 + (int(numbered[1]) if numbered else zlib.crc32(one.name.encode()))

    def link_ends(self, one: CollectiveExecution, link: LinkTransfer) -> tuple[str | None, int, int, str]:
        """(group, src, dst, scope) of a link.

        Point-to-point operators number the partner inside the pair (the lower rank is 0) and this rank inside the stage:
        if the recorded numbers agree with that and the partner is known, both ends are known.
        """
        if one.op not in POINT_TO_POINT:
            return self.group, link.src, link.dst, "group"
        if self.peer is not None:
            other = int(self.peer > self.rank)
            if one.op == "receive" and (link.src, link.dst) == (other, self.index):
                return self.pair, self.peer, self.rank, "global"
            if one.op == "send" and (link.src, link.dst) == (self.index, other):
                return self.pair, self.rank, self.peer, "global"
        return None, link.src, link.dst, "group"


def add_executions(executions: Sequence[CollectiveExecution], communicators: RankCommunicators, sink: Sink) -> None:
    """Rows of `collectives`, `transfers` and `packets`."""
    sink.add(
        "collectives",
        {
            "step": [one.step for one in executions],
            "group": [communicators.group_of(one.op) for one in executions],
            "op": [one.op for one in executions],
            "name": [one.name for one in executions],
            "sequence": [communicators.sequence_of(one) for one in executions],
            "peer": [communicators.peer_of(one.op) for one in executions],
            "start": [one.start for one in executions],
            "duration": [one.duration for one in executions],
            "transit": [one.transit for one in executions],
            "wait": [one.wait for one in executions],
            "sync": [one.sync for one in executions],
            "idle": [one.idle for one in executions],
            "bytes": [one.bytes for one in executions],
        },
    )
    if sink.wants("transfers"):
        _add_links([(one, link) for one in executions for link in one.links], communicators, sink)
    if sink.wants("packets"):
        _add_packets([(one, packet) for one in executions for packet in one.packets], communicators, sink)


def _add_links(
    links: Sequence[tuple[CollectiveExecution, LinkTransfer]], communicators: RankCommunicators, sink: Sink
) -> None:
    ends = [communicators.link_ends(one, link) for one, link in links]
    sink.add(
        "transfers",
        {
            "step": [one.step for one, _ in links],
            "group": [group for group, _, _, _ in ends],
            "name": [one.name for one, _ in links],
            "sequence": [communicators.sequence_of(one) for one, _ in links],
            "src": [src for _, src, _, _ in ends],
            "dst": [dst for _, _, dst, _ in ends],
            "scope": [scope for _, _, _, scope in ends],
            "transport": [link.transport for _, link in links],
            "bytes": [link.bytes for _, link in links],
            "duration": [link.duration for _, link in links],
            "wait": [link.wait for _, link in links],
        },
    )


def add_step_links(step: int | None, links: Sequence[LinkTransfer], sink: Sink) -> None:
    """Rows of `transfers` for a whole step, if its operators were not recorded."""
    sink.add(
        "transfers",
        {
            "step": [step] * len(links),
            "src": [link.src for link in links],
            "dst": [link.dst for link in links],
            "scope": ["group"] * len(links),
            "transport": [link.transport for link in links],
            "bytes": [link.bytes for link in links],
            "duration": [link.duration for link in links],
            "wait": [link.wait for link in links],
        },
    )


def _add_packets(
    packets: Sequence[tuple[CollectiveExecution, PacketCount]], communicators: RankCommunicators, sink: Sink
) -> None:
    sink.add(
        "packets",
        {
            "step": [one.step for one, _ in packets],
            "group": [communicators.group_of(one.op) for one, _ in packets],
            "name": [one.name for one, _ in packets],
            "sequence": [communicators.sequence_of(one) for one, _ in packets],
            "transport": [packet.transport for _, packet in packets],
            "packet_bytes": [packet.packet_bytes for _, packet in packets],
            "count": [packet.count for _, packet in packets],
            "duration": [packet.duration for _, packet in packets],
        },
    )
