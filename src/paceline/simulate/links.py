"""How long a message takes on the wire: packets, latency, bandwidth, and the ring."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.simulate.program import Message


@dataclass(frozen=True)
class Transport:
    """bandwidth in bytes per ns (= GB/s), reached by packets much bigger than latency · bandwidth."""

    name: str
    bandwidth: float
    latency: float  # ns per packet
    packet: int  # largest packet, bytes
    acknowledge: float  # part of the time spent waiting for acknowledgements


TRANSPORTS = {
    "HCCS": Transport("HCCS", 18.0, 2_000.0, 8 << 20, 0.0),
    "RDMA": Transport("RDMA", 12.5, 5_000.0, 4 << 20, 0.05),
}


@dataclass(frozen=True)
class Packets:
    """What one rank sends for one message: (size, count) pairs, biggest first."""

    sizes: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.sizes)

    @property
    def bytes(self) -> int:
        return sum(size * count for size, count in self.sizes)


def chunks(message: Message, ranks: int) -> tuple[int, int]:
    """(number, bytes) of the chunks one rank sends round the ring.

    all_reduce                   2 (n − 1) chunks of payload / n
    all_gather, reduce_scatter     (n − 1) chunks of payload / n
    send                                 1 chunk, the payload;  receive: none
    """
    if message.op == "receive":
        return 0, 0
    if message.op == "send":
        return 1, message.payload
    rounds = 2 if message.op == "all_reduce" else 1
    return rounds * (ranks - 1), message.payload // ranks


def packets(message: Message, ranks: int, largest: int) -> Packets:
    """Each chunk is cut into packets of at most `largest` bytes."""
    number, size = chunks(message, ranks)
    if not number:
        return Packets(())
    whole, rest = divmod(size, largest)
    pairs = [(largest, number * whole)] if whole else []
    return Packets(tuple(pairs + ([(rest, number)] if rest else [])))


def wire_time(packed: Packets, transport: Transport, slower: float = 1.0) -> float:
    """time = packets · latency + bytes / bandwidth, in ns; a sick link has its bandwidth divided by `slower`."""
    return packed.count * transport.latency + packed.bytes / transport.bandwidth * slower
