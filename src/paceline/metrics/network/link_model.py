"""What a link should need for its messages, and how far each link is from that.

    expected time of a message of s bytes = alpha + s / beta          alpha: latency, beta: bandwidth

Links of a *class* (one transport; between hosts or inside them) are compared kind by kind of message (link_traffic.py).
The reference of a kind is, in this order of trust:

    peers       the fast links of the kind: the fastest of fewer than six, else the fastest fifth
    run         other kinds of the class: the line fitted to their references (Theil-Sen over message sizes)
    hardware    the profile of the transport: latency and the bandwidth that large messages reach

A later reference is less alike, so it replaces the earlier only where that is far slower (RUN_GAP, HARDWARE_GAP). A kind with
one link has no peers. Per link and kind, with the time of one byte as cost:

    excess      = ln(cost / reference)
    deviation   = hypot(MODEL_ERROR, spread of the fast half of the links, scatter of the class / √executions)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.network.link_traffic import Floats, Ints, LinkTraffic

PEERS, RUN, HARDWARE = 0, 1, 2
"""Where a reference comes from."""
FEW_LINKS = 6
RUN_GAP = 1.8
"""Another kind of message is a reference from this factor on."""
HARDWARE_GAP = 2.0
"""Sites reach speeds that differ by this factor with the same hardware: only more is a fault."""
MODEL_ERROR = 0.06
LATENCY_NS = 10_000.0
"""Of a message, where no profile tells: generous, so that small messages are not called slow."""
FIT_SIZES = 4.0
"""A line is fitted where message sizes span at least this factor."""


class LinkProfile(Protocol):
    """What is known of a transport from data sheets and benchmarks."""

    @property
    def reached(self) -> float:
        """GB/s that large messages reach."""

    @property
    def latency(self) -> float:
        """µs of one message."""


Profiles = Mapping[str, LinkProfile]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Line:
    """alpha + s / beta; ns and bytes per ns (GB/s)."""

    alpha: float
    beta: float

    def time(self, size: Floats | float) -> Floats | float:
        return self.alpha + size / self.beta

    def cost(self, size: float) -> float:
        """ns per byte of messages of this size."""
        return self.alpha / size + 1 / self.beta


@dataclass(frozen=True)
class LinkExcess:
    """How far each row of the traffic is from its reference."""

    traffic: LinkTraffic
    reference: Floats
    """ns per byte."""
    source: Ints
    """PEERS, RUN or HARDWARE."""
    excess: Floats
    """ln of cost over reference."""
    deviation: Floats
    crosses: NDArray[np.bool_]
    """Whether the link leaves its host."""
    src_host: Ints
    dst_host: Ints
    """Numbers of hosts, in the order of `hosts`."""
    hosts: tuple[str | None, ...]
    """Names; None where the recording names none."""
    host_ranks: tuple[tuple[int, ...], ...]
    lines: Mapping[tuple[str, bool], Line]
    """The line fitted to each class."""


def fit_line(sizes: Floats, times: Floats, latency: float) -> Line:
    """Latency and bandwidth from times of messages: Theil-Sen where sizes differ, else with a known latency.

    >>> fit_line(np.array([1e5, 1e6, 4e6]), np.array([1.5e4, 1.05e5, 4.05e5]), 0.0)
    Line(alpha=5000.0, beta=10.0)
    """
    if len(sizes) > 1 and sizes.max() >= FIT_SIZES * sizes.min():
        one, other = np.triu_indices(len(sizes), 1)
        apart = np.abs(np.log(sizes[other] / sizes[one])) >= np.log(FIT_SIZES) / 2
        slopes = (times[other] - times[one])[apart] / (sizes[other] - sizes[one])[apart]
        slope = float(np.median(slopes)) if len(slopes) else 0.0
        alpha = max(0.0, float(np.median(times - slope * sizes)))
        if slope > 0:
            return Line(round(alpha, 6), round(1 / slope, 9))
    rest = np.maximum(times - latency, 0.2 * times)
    return Line(latency, float(np.max(sizes / rest)))


def link_excess(traffic: LinkTraffic, hosts: Mapping[int, str | None], profiles: Profiles) -> LinkExcess:
    """Compare every link with its reference."""
    names, ranks, src_host, dst_host = _hosts(traffic, hosts)
    crosses = src_host != dst_host
    size = _message_sizes(traffic)
    reference, source = np.full(traffic.length, np.nan), np.zeros(traffic.length, dtype=np.int64)
    deviation, lines = np.full(traffic.length, MODEL_ERROR), {}
    for transport in sorted(set(traffic.transport.tolist())):
        for beyond in (False, True):
            rows = np.flatnonzero((traffic.transport == transport) & (crosses == beyond))
            if not len(rows):
                continue
            compared = _ClassModel(traffic, rows, size, profiles.get(transport))
            reference[rows], source[rows], deviation[rows] = compared.reference, compared.source, compared.deviation
            lines[transport, beyond] = compared.line
    return LinkExcess(
        traffic, reference, source, np.log(traffic.cost / reference), deviation, crosses,
        src_host, dst_host, names, ranks, lines,
    )  # fmt: skip


class _ClassModel:
    """References of the links of one class."""

    def __init__(self, traffic: LinkTraffic, rows: Ints, size: Floats, profile: LinkProfile | None) -> None:
        self.cost, self.size = traffic.cost[rows], size[rows]
        self._kinds = [np.flatnonzero(traffic.kind[rows] == kind) for kind in np.unique(traffic.kind[rows])]
        self._fast = np.array([fast_cost(self.cost[places]) for places in self._kinds])
        sizes = np.array([float(np.median(self.size[places])) for places in self._kinds])
        latency = 1000 * profile.latency if profile else LATENCY_NS
        self.line = fit_line(sizes, self._fast * sizes, latency)
        hardware = Line(latency, profile.reached) if profile else None
        self.reference, self.source = np.empty(len(rows)), np.zeros(len(rows), dtype=np.int64)
        for number, places in enumerate(self._kinds):
            cost, source = self._kind_reference(number, sizes, latency, hardware)
            self.reference[places], self.source[places] = cost, source
        spread = [
            _fast_spread(np.log(self.cost[places] / cost)) for places, cost in zip(self._kinds, self._fast, strict=True)
        ]
        known = [each for each in spread if not np.isnan(each)]
        between = float(np.median(known)) if known else 0.0
        scatter = float(np.median(traffic.scatter[rows]))
        self.deviation = np.hypot(np.hypot(MODEL_ERROR, between), scatter / np.sqrt(traffic.executions[rows]))

    def _kind_reference(self, number: int, sizes: Floats, latency: float, hardware: Line | None) -> tuple[float, int]:
        own, size = float(self._fast[number]), float(sizes[number])
        best, source = own, PEERS
        elsewhere = self._elsewhere(number, sizes, latency)
        if elsewhere is not None and own > RUN_GAP * elsewhere:
            best, source = elsewhere, RUN
        if hardware is not None and best > HARDWARE_GAP * hardware.cost(size):
            best, source = hardware.cost(size), HARDWARE
        return best, source

    def _elsewhere(self, number: int, sizes: Floats, latency: float) -> float | None:
        """ns per byte by what messages of other kinds show: at least the better half of them."""
        others = np.delete(np.arange(len(sizes)), number)
        if not len(others):
            return None
        line = fit_line(sizes[others], (self._fast * sizes)[others], latency)
        return Line(max(line.alpha, latency), line.beta).cost(float(sizes[number]))


def fast_cost(cost: Floats) -> float:
    """What the fast ones need, of some that should need the same."""
    return float(cost.min() if len(cost) < FEW_LINKS else np.quantile(cost, 0.2))


def _fast_spread(excess: Floats) -> float:
    """Robust deviation among the fast half of the links; nan for few."""
    fast = np.sort(excess)[: (len(excess) + 1) // 2]
    return 1.4826 * float(np.median(np.abs(fast - np.median(fast)))) if len(fast) >= 3 else float("nan")


def _message_sizes(traffic: LinkTraffic) -> Floats:
    """Bytes of a message; where none were recorded those of a ring, the smallest there are."""
    rounds = np.maximum(1, traffic.size - 1) * np.where(traffic.op == "allreduce", 2, 1)
    rounds = np.where(np.isin(traffic.op, ("send", "receive", "broadcast")), 1, rounds)
    guess = traffic.execution / np.where(traffic.size > 1, rounds, 1)
    sizes: Floats = np.where(np.isnan(traffic.message), guess, traffic.message)
    return np.maximum(1.0, sizes)


def _hosts(
    traffic: LinkTraffic, hosts: Mapping[int, str | None]
) -> tuple[tuple[str | None, ...], tuple[tuple[int, ...], ...], Ints, Ints]:
    """Hosts of the ranks: by name, or where none is named the ranks that links other than network links join."""
    ranks = np.unique(np.concatenate([traffic.src, traffic.dst, np.array(list(hosts), dtype=np.int64)]))
    label = {int(rank): hosts.get(int(rank)) or f"\0{rank}" for rank in ranks}
    if all(hosts.get(int(rank)) is None for rank in ranks):
        label = _joined(traffic, ranks)
    names = sorted(set(label.values()), key=lambda name: min(rank for rank in label if label[rank] == name))
    number = {name: place for place, name in enumerate(names)}
    members = tuple(tuple(rank for rank in label if label[rank] == name) for name in names)
    of = np.array([number[label[int(rank)]] for rank in ranks], dtype=np.int64)
    shown = tuple(None if name.startswith("\0") else name for name in names)
    return shown, members, of[np.searchsorted(ranks, traffic.src)], of[np.searchsorted(ranks, traffic.dst)]


NETWORK = frozenset({"RDMA", "ROCE", "STANDARD_ROCE", "IB", "NET"})
"""Transports that leave a host."""


def _joined(traffic: LinkTraffic, ranks: Ints) -> dict[int, str]:
    """Ranks joined by links inside hosts; a run without any such link has hosts of one card."""
    root = {int(rank): int(rank) for rank in ranks}

    def find(rank: int) -> int:
        while root[rank] != rank:
            root[rank] = root[root[rank]]
            rank = root[rank]
        return rank

    inside = ~np.isin(traffic.transport.astype(str), list(NETWORK))
    pairs = {(int(a), int(b)) for a, b in zip(traffic.src[inside], traffic.dst[inside], strict=True)}
    for one, other in pairs:
        low, high = sorted((find(one), find(other)))
        root[high] = low
    return {rank: f"\0{find(rank)}" for rank in root}
