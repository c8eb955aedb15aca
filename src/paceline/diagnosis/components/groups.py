"""Which components of the network explain the groups of ranks that are slower than expected, where links are not recorded.

A group covers whatever lies between its ranks, and runs at its slowest place. So a component covers every group that may use
it, and a group proves a component healthy only as a whole:

    fabric     every group                                   nic      every group with ranks on a host and elsewhere
    pair       every group with ranks on both hosts          card     every group with this rank
    cut        every group with ranks on both sides          group    one set of ranks: something between them

The families and their prices are those of links (network.py); the first that fits is named, others with the same groups are
told. Kinds of collective that only run between the same hosts compare ranks, not hosts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from paceline.diagnosis.components.network import bipartitions
from paceline.diagnosis.components.search import (
    MIN_SHARE,
    PRICE,
    Component,
    Explanation,
    Ints,
    Observations,
    explain,
    weighted_median,
)
from paceline.metrics.network.group_traffic import GroupExcess
from paceline.metrics.network.link_model import HARDWARE

MIN_GROUP_FACTOR = 1.5
"""What is slower by less may be the way between the hosts, or other work at the same time."""


@dataclass(frozen=True)
class GroupFault:
    """A component that makes groups slow."""

    explanation: Explanation
    seen: Ints
    """Rows of the traffic that are evidence."""
    rows: Ints
    """Rows of the traffic over the component, also those that nothing can be compared with."""


def group_faults(excess: GroupExcess) -> tuple[GroupFault, ...]:
    """Every component at fault, largest margin first."""
    rows = np.flatnonzero(excess.has_peers | excess.tells_hosts)
    traffic = excess.traffic
    weight = (traffic.time * excess.reference / traffic.cost)[rows]
    seen = Observations(excess.excess[rows], excess.deviation[rows], traffic.executions[rows], weight)
    if not seen.suspicious.any():
        return ()
    candidates = [one for one in _Groups(excess, rows, seen).components() if _is_slow(one, seen)]
    return tuple(
        GroupFault(each, rows[each.component.rows], _used_by(excess, each.component))
        for each in explain(seen, candidates)
    )


def _is_slow(one: Component, seen: Observations) -> bool:
    slow = weighted_median(seen.excess[one.rows], seen.weight[one.rows]) >= math.log(MIN_GROUP_FACTOR)
    return bool(slow and seen.suspicious[one.rows].mean() >= MIN_SHARE)


class _Groups:
    """Components of the hosts that groups connect."""

    def __init__(self, excess: GroupExcess, rows: Ints, seen: Observations) -> None:
        traffic = excess.traffic
        self._ranks = [traffic.ranks[row] for row in rows.tolist()]
        self._hosts = [traffic.hosts[row] for row in rows.tolist()]
        self._tells, self._seen = excess.tells_hosts[rows], seen
        self._outside, self._below = excess.source[rows] == HARDWARE, excess.below_hardware[rows]
        self._names = traffic.host_names
        self._slow = np.flatnonzero(seen.suspicious).tolist()

    def components(self) -> Iterator[Component]:
        yield from self._fabric()
        yield from self._nics_and_pairs()
        yield from self._sets_of_ranks()
        yield from self._cuts()

    def _fabric(self) -> Iterator[Component]:
        """Accused by the hardware only; what is only compared with equally slow peers says nothing about it."""
        rows = np.flatnonzero(self._tells & (self._outside | ~self._below))
        weight = self._seen.weight[rows]
        if len(rows) and weight[self._outside[rows]].sum() >= MIN_SHARE * weight.sum():
            yield Component("fabric", (), rows, PRICE)

    def _nics_and_pairs(self) -> Iterator[Component]:
        slow = {self._hosts[row] for row in self._slow if self._tells[row]}
        count = len(self._names)
        for host in sorted(frozenset().union(*slow)):
            yield from self._between_hosts("nic", (host,), math.log(count))
        pairs = {pair for hosts in slow for pair in combinations(sorted(hosts), 2)}
        for pair in sorted(pairs):
            yield from self._between_hosts("pair", pair, math.log(count * (count - 1) / 2) + 0.7)

    def _cuts(self) -> Iterator[Component]:
        halves = bipartitions(list(range(len(self._names)))) if len(self._names) >= 4 else []
        for half, in_a_row in halves:
            price = math.log(len(halves)) + (1.0 if in_a_row else PRICE)
            yield from self._between_hosts("cut", half, price)

    def _between_hosts(self, family: str, key: tuple[int, ...], price: float) -> Iterator[Component]:
        crossing = np.array([_crosses(family, frozenset(key), hosts) for hosts in self._hosts])
        rows = np.flatnonzero(self._tells & crossing)
        if len(rows):
            yield Component(family, key, rows, PRICE + price)

    def _sets_of_ranks(self) -> Iterator[Component]:
        """Cards and whole groups that are slow."""
        sets = sorted({self._ranks[row] for row in self._slow})
        price = PRICE + math.log(len(set(self._ranks)))
        for one in sets:
            yield Component("group", one, _rows(ranks == one for ranks in self._ranks), price)
        price = PRICE + math.log(len({rank for ranks in self._ranks for rank in ranks}))
        for rank in sorted({rank for ranks in sets for rank in ranks}):
            yield Component("card", (rank,), _rows(rank in ranks for ranks in self._ranks), price)


def _rows(chosen: Iterable[bool]) -> Ints:
    return np.flatnonzero(np.fromiter(chosen, dtype=np.bool_))


def _used_by(excess: GroupExcess, component: Component) -> Ints:
    """Every row of the traffic whose ranks communicate over the component."""
    family, key, traffic = component.family, component.key, excess.traffic
    if family == "card":
        return _rows(key[0] in ranks for ranks in traffic.ranks)
    if family == "group":
        return _rows(ranks == key for ranks in traffic.ranks)
    return _rows(_crosses(family, frozenset(key), hosts) for hosts in traffic.hosts)


def _crosses(family: str, key: frozenset[int], hosts: frozenset[int]) -> bool:
    if family == "cut":
        return bool(hosts & key) and not hosts <= key
    return key <= hosts
