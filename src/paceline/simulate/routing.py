"""Route of each message of a rank: communicator, link, packets, and the time of each packet size."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.simulate.cluster import Cluster, Group
from paceline.simulate.cluster_state import ClusterState
from paceline.simulate.links import TRANSPORTS, Packets, Transport, packets
from paceline.simulate.program import Message, StageProgram


@dataclass(frozen=True)
class MessageRoute:
    """A message as sent by one rank. Source and target are indices in the communicator."""

    message: Message
    group: Group
    rank: int
    source: int
    target: int
    transport: Transport
    packets: Packets

    @property
    def op(self) -> str:
        return self.message.op

    @property
    def peer(self) -> int:
        """The global rank at the other end of the link."""
        return self.group.ranks[self.target]

    @property
    def bytes(self) -> int:
        return self.packets.bytes

    @property
    def sends(self) -> bool:
        return bool(self.packets.sizes)

    def packet_times(self, total: int) -> list[tuple[int, int, int]]:
        """(size, count, ns of all of them); shares follow latency + size / bandwidth and sum up to `total`."""
        weights = [
            count * (self.transport.latency + size / self.transport.bandwidth) for size, count in self.packets.sizes
        ]
        shares = [round(total * weight / sum(weights) / 10) * 10 for weight in weights]
        shares[-1:] = [total - sum(shares[:-1])]
        return [(size, count, share) for (size, count), share in zip(self.packets.sizes, shares, strict=True)]


def routes(cluster: Cluster, state: ClusterState, program: StageProgram, rank: int) -> tuple[MessageRoute, ...]:
    """One route per message of the program; equal messages share one."""
    known: dict[Message, MessageRoute] = {}
    for message in program.messages:
        if message not in known:
            known[message] = _route(cluster, state, message, rank)
    return tuple(known[message] for message in program.messages)


def _route(cluster: Cluster, state: ClusterState, message: Message, rank: int) -> MessageRoute:
    group = cluster.group(message.axis, rank)
    target = group.following(rank)
    transport = TRANSPORTS[cluster.transport(rank, target)]
    largest = min(state.largest_packet or transport.packet, transport.packet)
    packed = packets(message, len(group.ranks), largest)
    return MessageRoute(message, group, rank, group.index(rank), group.index(target), transport, packed)
