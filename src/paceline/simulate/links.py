"""Transfer time of a message on a link: packets, latency, bandwidth, and ring algorithms."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.simulate.program import Message


@dataclass(frozen=True)
class Transport:
    """bandwidth in bytes per ns (= GB/s), reached by packets much larger than latency · bandwidth."""

    name: str
    bandwidth: float
    latency: float  # ns per packet
    packet: int  # largest packet, bytes
    acknowledge: float  # share of the time spent waiting for acknowledgements


TRANSPORTS = {
    "HCCS": Transport("HCCS", 18.0, 2_000.0, 8 << 20, 0.0),
    "RDMA": Transport("RDMA", 12.5, 5_000.0, 4 << 20, 0.05),
}


@dataclass(frozen=True)
class Packets:
    """Packets one rank sends for a message: (size, count) pairs, largest first."""

    sizes: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.sizes)

    @property
    def bytes(self) -> int:
        return sum(size * count for size, count in self.sizes)


def chunks(message: Message, ranks: int) -> tuple[int, int]:
    """(number, bytes) of the chunks one rank sends in the ring.

    all_reduce                   2 (n − 1) chunks of payload / n
    all_gather, reduce_scatter,
    all_to_all                     (n − 1) chunks of payload / n
    send                                 1 chunk, the payload;  receive: none
    """
    if message.op == "receive":
        return 0, 0
    if message.op == "send":
        return 1, message.payload
    rounds = 2 if message.op == "all_reduce" else 1
    return rounds * (ranks - 1), message.payload // ranks


def packets(message: Message, ranks: int, largest: int) -> Packets:
    """Each chunk is split into packets of at most `largest` bytes."""
    number, size = chunks(message, ranks)
    if not number:
        return Packets(())
    whole, rest = divmod(size, largest)
    pairs = [(largest, number * whole)] if whole else []
    return Packets(tuple(pairs + ([(rest, number)] if rest else [])))


def transfer_time(packed: Packets, transport: Transport, slower: float = 1.0) -> float:
    """time = packets · latency + bytes / bandwidth · slower, in ns; `slower` > 1 on a slow link."""
    return packed.count * transport.latency + packed.bytes / transport.bandwidth * slower
