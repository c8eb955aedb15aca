"""How fast groups of ranks between hosts move data: what can be observed where no transfers per link were recorded.

The transfer of a collective is the shortest time any member stayed (comm_events.py). Collectives are *alike* (of one kind)
that run the same operator over as many ranks and hosts with payloads of like size, beside computing or not. Per set of ranks
and kind, over the collectives that all members recorded:

    sent        = bytes that a rank sends in a ring: 2 (n - 1) / n of the payload in all_reduce, (n - 1) / n in all_gather,
                  reduce_scatter and all_to_all, else the payload
    cost        = median of transfer / sent                                                          ns per byte
    scatter     = (3rd - 1st quartile of transfer / sent) / 1.349 / cost
    reference   = cost of the fast sets of ranks of the kind: the fastest of fewer than six, else the fastest fifth;
                  or, if that is HARDWARE_GAP times slower, what the hardware profile expects
    excess      = ln(cost / reference)
    deviation   = hypot(MODEL_ERROR, scatter / √collectives)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paceline.metrics.communication.comm_events import Ints
from paceline.metrics.network.link_model import HARDWARE, HARDWARE_GAP, PEERS, Bools, LinkProfile, fast_cost
from paceline.metrics.network.link_traffic import FEW_BYTES, Floats
from paceline.metrics.timeline.rank_timeline import Timeline

MODEL_ERROR = 0.1
"""Groups differ more than links: by the way between their hosts, and by what else runs at the time."""
LIKE_SIZE = 1.3
"""Sizes in a row that differ by less than this factor are alike."""
LEAST_CHUNK = 65_536
"""Bytes per member from which bandwidth decides, not latency."""
BESIDE_COMPUTING = 0.3
"""Share of the time in a collective in which its members compute."""
MESSAGE = "message"
"""The operator of messages between two ranks."""

_MESSAGES = ("send", "receive", "send_receive")
_RINGS = ("all_gather", "reduce_scatter", "all_to_all")
_Kind = tuple[str, int, int, bool]


@dataclass(frozen=True)
class GroupTraffic:
    """One row per set of ranks and kind of collective."""

    ranks: tuple[tuple[int, ...], ...]
    hosts: tuple[frozenset[int], ...]
    """Numbers of hosts."""
    host_names: tuple[str, ...]
    """In the order of their ranks."""
    instances: tuple[Ints, ...]
    """The collectives."""
    collective: Bools
    """Not a message between two ranks."""
    kind: Ints
    sent: Floats
    """Median bytes."""
    rounds: Floats
    """How many messages follow each other in a ring."""
    cost: Floats
    scatter: Floats

    @property
    def length(self) -> int:
        return len(self.ranks)

    @cached_property
    def executions(self) -> Floats:
        return np.array([len(each) for each in self.instances], dtype=np.float64)

    @property
    def time(self) -> Floats:
        """ns in all collectives of the row."""
        return self.cost * self.sent * self.executions


@dataclass(frozen=True)
class GroupExcess:
    """How far each row of the traffic is from its reference."""

    traffic: GroupTraffic
    reference: Floats
    source: Ints
    """PEERS or HARDWARE."""
    excess: Floats
    deviation: Floats
    has_peers: Bools
    """Whether other groups run the kind."""
    tells_hosts: Bools
    """Whether the kind runs between different sets of hosts, or is compared with the hardware."""
    below_hardware: Bools
    """Slower by HARDWARE_GAP than the profile expects; messages too, although they are not accused by it."""


def group_traffic(timeline: Timeline, sizes: Mapping[str, int], hosts: Mapping[int, str | None]) -> GroupTraffic:
    """Every group of ranks on several hosts; `sizes` holds how many ranks each group has."""
    alike: dict[_Kind, list[tuple[float, int]]] = defaultdict(list)
    found = _Instances(timeline)
    for instance in np.flatnonzero(found.usable).tolist():
        ranks, size = found.ranks(instance), sizes.get(found.group(instance), 0)
        named = {hosts.get(rank) for rank in ranks}
        if None in named or len(named) < 2 or (found.is_collective(instance) and len(ranks) < size):
            continue
        kind = (found.op(instance), len(ranks), len(named), bool(found.beside[instance]))
        alike[kind].append((found.sent(instance), instance))
    rows: list[tuple[int, tuple[int, ...], list[int]]] = []
    classes = (members for kind in sorted(alike) for members in _of_like_size(alike[kind]))
    for number, members in enumerate(classes):
        of_ranks: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for instance in members:
            of_ranks[found.ranks(instance)].append(instance)
        rows += [(number, ranks, of_ranks[ranks]) for ranks in sorted(of_ranks)]
    return _traffic(found, rows, hosts)


def _of_like_size(sized: list[tuple[float, int]]) -> list[list[int]]:
    """Numbers of collectives, divided where sizes jump."""
    ordered, result, before = sorted(sized), list[list[int]](), 0.0
    for size, instance in ordered:
        if size > LIKE_SIZE * before:
            result.append([])
        result[-1].append(instance)
        before = size
    return result


class _Instances:
    """Collectives of a run, by number."""

    def __init__(self, timeline: Timeline) -> None:
        self._events = events = timeline.events
        count = events.instances
        self._order = np.argsort(events.instance, kind="stable")
        self._first = np.searchsorted(events.instance[self._order], np.arange(count + 1))
        self._payload = np.full(count, -1, dtype=np.int64)
        np.maximum.at(self._payload, events.instance, events.bytes)
        stayed = np.bincount(events.instance, events.duration, minlength=count)
        computed = np.bincount(events.instance, timeline.overlap, minlength=count)
        self.beside: Bools = computed > BESIDE_COMPUTING * np.maximum(1.0, stayed)
        large = (self._payload >= FEW_BYTES) & (self._payload >= LEAST_CHUNK * events.members)
        ends = np.bincount(events.instance, timeline.is_end, minlength=count) > 0
        self.usable: Bools = large & ~ends & (events.members > 1) & (events.transfer > 0)

    def ranks(self, instance: int) -> tuple[int, ...]:
        rows = self._order[self._first[instance] : self._first[instance + 1]]
        return tuple(sorted(self._events.ranks[self._events.rank[rows]].tolist()))

    def group(self, instance: int) -> str:
        return str(self._events.group_key[self._events.first_row[instance]])

    def op(self, instance: int) -> str:
        name = str(self._events.op[self._events.first_row[instance]])
        return MESSAGE if name in _MESSAGES else name

    def is_collective(self, instance: int) -> bool:
        return self.op(instance) != MESSAGE

    def sent(self, instance: int) -> float:
        size = int(self._events.members[instance])
        share = {"all_reduce": 2.0, **dict.fromkeys(_RINGS, 1.0)}.get(self.op(instance))
        return float(self._payload[instance]) * (1.0 if share is None else share * (size - 1) / size)

    def rounds(self, instance: int) -> int:
        others = int(self._events.members[instance]) - 1
        return {"all_reduce": 2 * others, MESSAGE: 1}.get(self.op(instance), others)

    def costs(self, instances: list[int]) -> Floats:
        sent = np.array([self.sent(instance) for instance in instances])
        costs: Floats = self._events.transfer[instances] / sent
        return costs


def _traffic(
    found: _Instances, rows: list[tuple[int, tuple[int, ...], list[int]]], hosts: Mapping[int, str | None]
) -> GroupTraffic:
    named = {str(host): rank for rank, host in sorted(hosts.items(), reverse=True) if host is not None}
    names = tuple(sorted(named, key=lambda name: named[name]))
    number = {name: place for place, name in enumerate(names)}
    quartiles = [np.quantile(found.costs(instances), [0.25, 0.5, 0.75]) for _, _, instances in rows]
    low, middle, high = np.array(quartiles).reshape(-1, 3).T
    return GroupTraffic(
        ranks=tuple(ranks for _, ranks, _ in rows),
        hosts=tuple(frozenset(number[str(hosts[rank])] for rank in ranks) for _, ranks, _ in rows),
        host_names=names,
        instances=tuple(np.array(instances, dtype=np.int64) for _, _, instances in rows),
        collective=np.array([found.is_collective(instances[0]) for _, _, instances in rows], dtype=np.bool_),
        kind=np.array([kind for kind, _, _ in rows], dtype=np.int64),
        sent=np.array([np.median([found.sent(each) for each in instances]) for _, _, instances in rows]),
        rounds=np.array([found.rounds(instances[0]) for _, _, instances in rows], dtype=np.float64),
        cost=middle,
        scatter=(high - low) / 1.349 / np.maximum(middle, 1e-12),
    )


def group_excess(traffic: GroupTraffic, profile: LinkProfile | None) -> GroupExcess:
    """Compare every row with its kind; `profile` is that of the network, None = not known."""
    reference, source = np.empty(traffic.length), np.full(traffic.length, PEERS)
    has_peers, tells = np.zeros(traffic.length, dtype=np.bool_), np.zeros(traffic.length, dtype=np.bool_)
    for kind in np.unique(traffic.kind).tolist():
        rows = np.flatnonzero(traffic.kind == kind)
        reference[rows] = fast_cost(traffic.cost[rows])
        has_peers[rows] = len(rows) > 1
        tells[rows] = len({traffic.hosts[row] for row in rows.tolist()}) > 1
    below = np.zeros(traffic.length, dtype=np.bool_)
    if profile is not None:
        expected = 1000 * profile.latency * traffic.rounds / np.maximum(1.0, traffic.sent) + 1 / profile.reached
        below = traffic.cost > HARDWARE_GAP * expected
        slow = (reference > HARDWARE_GAP * expected) & traffic.collective
        reference, source = np.where(slow, expected, reference), np.where(slow, HARDWARE, source)
        tells |= slow
    deviation = np.hypot(MODEL_ERROR, traffic.scatter / np.sqrt(np.maximum(1.0, traffic.executions)))
    excess = np.log(traffic.cost / reference)
    return GroupExcess(traffic, reference, source, excess, deviation, has_peers, tells, below)
