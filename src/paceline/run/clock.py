"""One clock for the cluster: offsets of all ranks, from collectives that end everywhere at the same moment.

A collective ends on all its members within microseconds, however late some of them arrived. So for two members a and
b the median of end(b) - end(a) over many collectives is the difference of their clocks:

    offset(b) - offset(a) = median over shared collectives of (end(b) - end(a))

Groups tie ranks together; sends and receives tie pipeline stages where no group does. The lowest rank of each set of
tied ranks keeps its own clock. Steps and links in between are not needed, and skew of any size is found.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import duckdb

MAX_SPREAD_NS = 2_000_000
"""Ends that scatter more than this (median absolute deviation) are not the same collective."""
_SWEEPS = 50

_COLLECTIVE_EDGES = """
    WITH ends AS (
        SELECT coalesce("group", name) AS tie, op, coalesce(step, -1) AS step, sequence, rank, start + duration AS finish
        FROM collectives
        WHERE sequence IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
          AND op NOT IN ('send', 'receive', 'send_receive')
        -- A name executed twice under one number cannot be joined; take it only where it is unique.
        QUALIFY count(*) OVER (PARTITION BY tie, op, step, sequence, rank) = 1
    ),
    anchors AS (
        SELECT tie, op, step, sequence, min(rank) AS anchor, arg_min(finish, rank) AS anchor_finish
        FROM ends GROUP BY tie, op, step, sequence HAVING count(*) > 1
    ),
    differences AS (
        SELECT anchor, rank, finish - anchor_finish AS difference
        FROM ends JOIN anchors USING (tie, op, step, sequence) WHERE rank <> anchor
    )
    SELECT anchor, rank, quantile_disc(difference, 0.5)::BIGINT AS difference, count(*) AS samples,
           mad(difference - first_difference)
    FROM (SELECT *, min(difference) OVER (PARTITION BY anchor, rank) AS first_difference FROM differences)
    GROUP BY anchor, rank ORDER BY anchor, rank
"""

_NEIGHBOUR_EDGES = """
    WITH
    numbered AS (
        SELECT "group" AS tie, rank, op, start + duration AS finish,
               row_number() OVER (PARTITION BY "group", rank, op ORDER BY start) AS place
        FROM collectives
        WHERE op IN ('send', 'receive') AND "group" IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
          AND "group" IN (SELECT "group" FROM collectives GROUP BY "group" HAVING count(DISTINCT rank) = 2)
    ),
    differences AS (
        SELECT sent.rank AS anchor, received.rank AS rank, received.finish - sent.finish AS difference
        FROM numbered AS sent JOIN numbered AS received USING (tie, place)
        WHERE sent.op = 'send' AND received.op = 'receive' AND sent.rank <> received.rank
    )
    SELECT anchor, rank, quantile_disc(difference, 0.5)::BIGINT, count(*),
           mad(difference - first_difference)
    FROM (SELECT *, min(difference) OVER (PARTITION BY anchor, rank) AS first_difference FROM differences)
    GROUP BY anchor, rank ORDER BY anchor, rank
"""


@dataclass(frozen=True)
class Edge:
    """`difference` = clock(rank) - clock(anchor), from so many samples."""

    anchor: int
    rank: int
    difference: int
    samples: int


def clock_offsets(connection: duckdb.DuckDBPyConnection) -> dict[int, int]:
    """ns to subtract from each rank's timestamps; ranks that share nothing with others are left out."""
    ties = _Ties()
    refined = []
    for query in (_COLLECTIVE_EDGES, _NEIGHBOUR_EDGES):
        rows = connection.execute(query).fetchall()
        edges = [Edge(a, b, d, n) for a, b, d, n, spread in rows if spread is None or spread <= MAX_SPREAD_NS]
        edges.sort(key=lambda edge: -edge.samples)
        # Sends and receives only tie what collectives left apart: their ends agree less well.
        refined += [edge for edge in edges if query is _COLLECTIVE_EDGES or not ties.tied(edge.anchor, edge.rank)]
        for edge in edges:
            ties.tie(edge)
    return _anchored(_relax(ties.offsets(), refined), ties)


class _Ties:
    """Union-find whose links carry clock differences."""

    def __init__(self) -> None:
        self._parent: dict[int, tuple[int, int]] = {}

    def tied(self, a: int, b: int) -> bool:
        return self.root(a)[0] == self.root(b)[0]

    def root(self, rank: int) -> tuple[int, int]:
        """(root, clock(rank) - clock(root)), shortening the path on the way."""
        trail = []
        parent, offset = self._parent.setdefault(rank, (rank, 0))
        while parent != rank:
            trail.append((rank, offset))
            rank = parent
            parent, offset = self._parent[rank]
        total = 0
        for node, step in reversed(trail):
            total += step
            self._parent[node] = (rank, total)
        return rank, total

    def tie(self, edge: Edge) -> None:
        (root_a, offset_a), (root_b, offset_b) = self.root(edge.anchor), self.root(edge.rank)
        if root_a != root_b:
            self._parent[root_b] = (root_a, offset_a + edge.difference - offset_b)

    def offsets(self) -> dict[int, float]:
        return {rank: float(self.root(rank)[1]) for rank in self._parent}


def _relax(offsets: dict[int, float], edges: list[Edge]) -> dict[int, float]:
    """Spread what the edges of cycles disagree about: damped averaging, weighted by samples."""
    neighbours: dict[int, list[tuple[int, float, int]]] = defaultdict(list)
    for edge in edges:
        neighbours[edge.rank].append((edge.anchor, edge.difference, edge.samples))
        neighbours[edge.anchor].append((edge.rank, -edge.difference, edge.samples))
    for _ in range(_SWEEPS):
        for rank, around in neighbours.items():
            weight = sum(samples for _, _, samples in around)
            target = sum((offsets[other] + difference) * samples for other, difference, samples in around) / weight
            offsets[rank] += 0.5 * (target - offsets[rank])
    return offsets


def _anchored(offsets: dict[int, float], ties: _Ties) -> dict[int, int]:
    """Shift each set of tied ranks so that its lowest rank keeps its clock."""
    lowest: dict[int, int] = {}
    for rank in sorted(offsets):
        lowest.setdefault(ties.root(rank)[0], rank)
    return {rank: round(offsets[rank] - offsets[lowest[ties.root(rank)[0]]]) for rank in sorted(offsets)}
