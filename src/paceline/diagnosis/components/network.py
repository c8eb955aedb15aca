"""Components of a network and the links that each covers.

    link       one direction between two cards          cable      both directions between two cards
    card       every link of a card (its ports)         nic        every link of a host to others
    nic-out    … that leave it                          nic-in     … that enter it
    pair       every link between two hosts             cut        every link between two halves of the hosts (a switch)
    board      every link inside a host                 fabric     every link of the class

Order matters where several cover the same links: the first is named, the others are told as alternatives. A network as a
whole is only accused by a reference from outside the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from paceline.diagnosis.components.search import MIN_SHARE, PRICE, Component, Ints, Observations

Bools = NDArray[np.bool_]

ALL_CUTS = 8
"""Up to so many hosts every bipartition is a possible switch; above, hosts in a row."""
MOST_HOSTS_FOR_ROWS = 64
MOST_OF_A_FAMILY = 128
"""Of more suspicious components of a family those with the largest excess are looked at."""


@dataclass(frozen=True)
class LinkEnds:
    """Both ends of each observation: ranks and numbers of hosts."""

    src: Ints
    dst: Ints
    src_host: Ints
    dst_host: Ints
    crosses: bool
    """Whether these links leave their hosts."""
    outside: Bools
    """Observations whose reference comes from outside the run."""


def link_components(ends: LinkEnds, observations: Observations) -> list[Component]:
    """Every component that could explain something suspicious."""
    families = _Families(ends, observations)
    if not observations.suspicious.any():
        return []
    return [one for family in families.all() for one in family]


class _Families:
    def __init__(self, ends: LinkEnds, observations: Observations) -> None:
        self.ends, self.seen = ends, observations
        self.suspicious = observations.suspicious
        self.lost = observations.weight * np.maximum(0, observations.excess)
        hosts = np.unique(np.concatenate([ends.src_host, ends.dst_host]))
        self.hosts: list[int] = hosts.tolist()
        self.width = int(max(ends.src.max(), ends.dst.max())) + 1

    def all(self) -> Iterator[list[Component]]:
        ends = self.ends
        yield self._single_links()
        yield self._pairs("cable", ends.src, ends.dst)
        yield self._touching("card", ends.src, ends.dst)
        if ends.crosses:
            yield self._touching("nic", ends.src_host, ends.dst_host)
            yield self._pairs("pair", ends.src_host, ends.dst_host)
            count = 2 * len(self.hosts)
            yield self._labelled("nic-out", ends.src_host, count, 0.7)
            yield self._labelled("nic-in", ends.dst_host, count, 0.7)
            yield self._fabric()
            yield list(self._cuts())
        else:
            yield self._labelled("board", ends.src_host, len(self.hosts), 0.0)
            yield self._fabric()

    def _single_links(self) -> list[Component]:
        ends = self.ends
        label = ends.src * self.width + ends.dst
        links = self._labelled("link", label, len(np.unique(label)), 0.0)
        return [
            Component("link", (one.key[0] // self.width, one.key[0] % self.width), one.rows, one.price) for one in links
        ]

    def _labelled(self, family: str, label: Ints, count: int, more: float) -> list[Component]:
        """Components that divide the observations."""
        found = self._worst(label)
        price = PRICE + math.log(max(1, count)) + more
        order = np.argsort(label, kind="stable")
        first = np.searchsorted(label[order], found, side="left")
        last = np.searchsorted(label[order], found, side="right")
        rows = [np.sort(order[a:b]) for a, b in zip(first.tolist(), last.tolist(), strict=True)]
        return [
            Component(family, (int(key),), mine, price)
            for key, mine in zip(found.tolist(), rows, strict=True)
            if self._mostly_suspicious(mine)
        ]

    def _worst(self, label: Ints) -> Ints:
        """Labels with anything suspicious, worst first, not too many."""
        labels, place = np.unique(label[self.suspicious], return_inverse=True)
        lost = np.bincount(place, self.lost[self.suspicious])
        worst: Ints = labels[np.argsort(-lost, kind="stable")][:MOST_OF_A_FAMILY]
        return worst

    def _touching(self, family: str, one: Ints, other: Ints) -> list[Component]:
        """Components that cover what begins or ends at them."""
        both = np.unique(np.concatenate([one, other]))
        price = PRICE + math.log(len(both))
        worst = np.unique(np.concatenate([self._worst(one), self._worst(other)]))
        rows = ((int(key), np.flatnonzero((one == key) | (other == key))) for key in worst.tolist())
        return [Component(family, (key,), mine, price) for key, mine in rows if self._mostly_suspicious(mine)]

    def _pairs(self, family: str, one: Ints, other: Ints) -> list[Component]:
        """Both directions between two ends."""
        low, high = np.minimum(one, other), np.maximum(one, other)
        width = int(high.max()) + 1
        label = low * width + high
        pairs = self._labelled(family, label, len(np.unique(label)), 0.7)
        return [Component(family, divmod(each.key[0], width), each.rows, each.price) for each in pairs]

    def _cuts(self) -> Iterator[Component]:
        """Bipartitions of at least two hosts on either side, by what crosses them."""
        halves = bipartitions(self.hosts)
        place = {host: number for number, host in enumerate(self.hosts)}
        src = np.array([place[host] for host in self.ends.src_host.tolist()])
        dst = np.array([place[host] for host in self.ends.dst_host.tolist()])
        width = len(self.hosts)
        pairs, pair = np.unique(src * width + dst, return_inverse=True)
        total, slow = np.bincount(pair), np.bincount(pair, self.suspicious)
        for half, in_a_row in halves:
            inside = np.zeros(width, dtype=np.bool_)
            inside[[place[host] for host in half]] = True
            crossing = inside[pairs // width] != inside[pairs % width]
            if slow[crossing].sum() >= MIN_SHARE * max(1, total[crossing].sum()):
                price = PRICE + math.log(len(halves)) + (1.0 if in_a_row else PRICE)
                yield Component("cut", half, np.flatnonzero(crossing[pair]), price)

    def _fabric(self) -> list[Component]:
        rows = np.arange(len(self.suspicious))
        outside = self.seen.weight[self.ends.outside].sum() >= MIN_SHARE * self.seen.weight.sum()
        return [Component("fabric", (), rows, PRICE)] if outside and self._mostly_suspicious(rows) else []

    def _mostly_suspicious(self, rows: Ints) -> bool:
        return bool(self.suspicious[rows].mean() >= MIN_SHARE)


def bipartitions(hosts: list[int]) -> list[tuple[tuple[int, ...], bool]]:
    """Smaller halves of two hosts and more, and whether their hosts stand in a row.

    >>> bipartitions([0, 1, 2, 3])
    [((0, 1), True), ((0, 2), False), ((0, 3), True)]
    """
    if len(hosts) > ALL_CUTS:
        return [(half, True) for half in _rows(hosts)]
    first, rest = hosts[0], hosts[1:]
    count = len(hosts)
    return [
        (half, _is_row(half, hosts))
        for size in range(1, count - 2)
        for others in combinations(rest, size)
        for half in [(first, *others)]
    ]


def _is_row(half: tuple[int, ...], hosts: list[int]) -> bool:
    """Hosts one after the other, the first after the last."""
    inside = [host in half for host in hosts]
    return sum(one != other for one, other in zip(inside, [*inside[1:], inside[0]], strict=True)) == 2


def _rows(hosts: list[int]) -> list[tuple[int, ...]]:
    """Hosts one after the other: any for a few dozen, blocks of a power of two above."""
    count = len(hosts)
    if count <= MOST_HOSTS_FOR_ROWS:
        ends = ((a, b) for a in range(count) for b in range(a + 2, count) if b - a <= count - 2)
        return [tuple(hosts[a:b]) for a, b in ends]
    sizes = (2**power for power in range(1, count.bit_length()))
    return [tuple(hosts[a : a + size]) for size in sizes for a in range(0, count - size + 1, size) if size <= count - 2]
