"""Clock offsets of all ranks, from collectives that end on all members at the same moment.

A collective ends on all its members within microseconds, however late some of them arrived. So the clocks of two
members a and b differ by the median over many collectives:

    offset(b) - offset(a) = median over shared collectives of (end(b) - end(a))

Groups connect ranks; sends and receives connect pipeline stages that no group connects. If a send does not wait for its
receive, their ends say nothing; but no message arrives before it was sent, and for some the receiver is waiting:

    offset(b) - offset(a) = (min over messages a → b of (end(b) - start(a)) - the same of b → a) / 2

The lowest rank of each set of connected ranks keeps its clock. Skew of any size is found.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

MAX_SPREAD_NS = 2_000_000
"""Ends that scatter more than this (median absolute deviation) do not belong to the same collective."""
DENSE_NS = 4_000
"""Most ends of one collective agree within this."""
TOGETHER_NS = 20_000
"""Sends and receives that wait for each other end within this; the others are buffered."""
NAMES_AGREE = 3
"""Operator names that must show the same difference; one or two can do so by chance."""
MOST_ANONYMOUS = 64
"""Sends and receives per rank and step that are compared."""
MOST_PAIRS = 50_000
MATCHED_SHARE = 0.25
"""Two ranks are partners if at least this share of their sends and receives match."""
_SWEEPS = 50

_COLLECTIVE_EDGES = """
    WITH ends AS (
        SELECT "group" AS shared, op, coalesce(step, -1) AS step, sequence, rank, any_value(start + duration) AS finish
        FROM collectives
        WHERE "group" IS NOT NULL AND sequence IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
          AND op NOT IN ('send', 'receive', 'send_receive')
        -- A name that is executed twice under one number cannot be joined.
        GROUP BY ALL HAVING count(*) = 1
    ),
    anchors AS (
        SELECT shared, op, step, sequence, min(rank) AS anchor, arg_min(finish, rank) AS anchor_finish
        FROM ends GROUP BY shared, op, step, sequence HAVING count(*) > 1
    ),
    differences AS (
        SELECT anchor, rank, finish - anchor_finish AS difference
        FROM ends JOIN anchors USING (shared, op, step, sequence) WHERE rank <> anchor
    )
    SELECT anchor, rank, quantile_disc(difference, 0.5)::BIGINT AS difference, count(*) AS samples,
           mad(difference - first_difference)
    FROM (SELECT *, min(difference) OVER (PARTITION BY anchor, rank) AS first_difference FROM differences)
    GROUP BY anchor, rank ORDER BY anchor, rank
"""

# Without groups, equal names may be collectives of different communicators: many differences mean nothing.
_NAMED_DIFFERENCES = """
    WITH ends AS (
        SELECT name, coalesce(step, -1) AS step, sequence, rank, any_value(start + duration) AS finish
        FROM collectives
        WHERE "group" IS NULL AND sequence IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
          AND op NOT IN ('send', 'receive', 'send_receive')
        GROUP BY ALL HAVING count(*) = 1
    ),
    neighbours AS (
        -- Each rank with a few others: enough to connect all, and linear in ranks.
        SELECT DISTINCT here.rank AS anchor, there.rank AS rank
        FROM (SELECT DISTINCT rank FROM ends) AS here JOIN (SELECT DISTINCT rank FROM ends) AS there
          ON there.rank > here.rank AND (there.rank - here.rank) IN (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512)
    ),
    differences AS (
        SELECT anchor, neighbours.rank, a.name, b.finish - a.finish AS difference
        FROM neighbours
        JOIN ends AS a ON a.rank = neighbours.anchor
        JOIN ends AS b ON b.rank = neighbours.rank AND b.name = a.name AND b.step = a.step AND b.sequence = a.sequence
    )
    SELECT anchor, rank, list(difference), list(steady) FROM (
        SELECT anchor, rank, quantile_disc(difference, 0.5)::BIGINT AS difference,
               count(*) > 1 AND max(difference) - min(difference) <= ? AS steady
        FROM differences GROUP BY anchor, rank, name
    ) GROUP BY anchor, rank ORDER BY anchor, rank
"""

_MESSAGES = """
    WITH numbered AS (
        SELECT "group" AS shared, rank, op, start, start + duration AS finish,
               row_number() OVER (PARTITION BY "group", rank, op ORDER BY start) AS position
        FROM collectives
        WHERE op IN ('send', 'receive') AND "group" IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
          AND "group" IN (SELECT "group" FROM collectives GROUP BY "group" HAVING count(DISTINCT rank) = 2)
    ),
    messages AS (
        SELECT sent.rank AS sender, received.rank AS receiver, received.finish - sent.finish AS difference,
               received.finish - sent.start AS travel
        FROM numbered AS sent JOIN numbered AS received USING (shared, position)
        WHERE sent.op = 'send' AND received.op = 'receive' AND sent.rank <> received.rank
    ),
    typical AS (
        SELECT sender, receiver, quantile_disc(difference, 0.5) AS median, min(travel) AS soonest, count(*) AS samples
        FROM messages GROUP BY ALL
    )
    SELECT sender, receiver, any_value(median)::BIGINT, any_value(soonest)::BIGINT, any_value(samples),
           quantile_disc(abs(difference - median), 0.9)::BIGINT
    FROM messages JOIN typical USING (sender, receiver) GROUP BY sender, receiver ORDER BY sender, receiver
"""

# Sends and receives without group and partner.
_ANONYMOUS_ENDS = """
    SELECT rank, coalesce(step, -1) AS step, op = 'receive' AS receives, op = 'send_receive' AS both,
           start + duration AS finish
    FROM collectives
    WHERE op IN ('send', 'receive', 'send_receive') AND start IS NOT NULL AND duration IS NOT NULL
      AND ("group" IS NULL OR "group" IN (SELECT "group" FROM collectives GROUP BY "group" HAVING count(DISTINCT rank) > 2))
    QUALIFY row_number() OVER (PARTITION BY rank, step ORDER BY start) <= ?
    ORDER BY rank, finish
"""


@dataclass(frozen=True)
class Edge:
    """`difference` = clock(rank) - clock(anchor), from so many samples."""

    anchor: int
    rank: int
    difference: int
    samples: int


@dataclass(frozen=True)
class _Messages:
    """All messages from one rank to another, ns, each rank on its own clock."""

    median: int
    """Median of end(receive) - end(send)."""
    soonest: int
    """Minimum of end(receive) - start(send)."""
    samples: int
    spread: int
    """90 % of the end differences are this close to the median."""


def clock_offsets(connection: duckdb.DuckDBPyConnection) -> dict[int, int]:
    """ns to subtract from each rank's timestamps; ranks that are connected with no other are left out."""
    connected = _ConnectedRanks()
    refined: list[Edge] = []

    def add(edges: list[Edge]) -> None:
        # Later kinds of edges are less exact: they only connect ranks that earlier kinds do not.
        new = [edge for edge in edges if not connected.are_connected(edge.anchor, edge.rank)]
        for edge in sorted(new, key=lambda edge: -edge.samples):
            connected.connect(edge)
        refined.extend(edge for edge in new if connected.agrees(edge))

    named = _named_edges(connection)
    add(_grouped_edges(connection))
    add([edge for edge in named if edge.samples])
    add(_neighbour_edges(connection))
    add(_anonymous_edges(connection, connected))
    add([edge for edge in named if not edge.samples])
    return _anchored(_relax(connected.offsets(), refined), connected)


def _grouped_edges(connection: duckdb.DuckDBPyConnection) -> list[Edge]:
    return _within_spread(connection.execute(_COLLECTIVE_EDGES).fetchall())


def _neighbour_edges(connection: duckdb.DuckDBPyConnection) -> list[Edge]:
    messages = {(row[0], row[1]): _Messages(*row[2:]) for row in connection.execute(_MESSAGES).fetchall()}
    edges = []
    for (sender, receiver), there in messages.items():
        back = messages.get((receiver, sender))
        if back is None:
            difference = there.median if there.spread <= TOGETHER_NS else there.soonest
            edges.append(Edge(sender, receiver, difference, there.samples))
        elif sender < receiver:
            edges.append(Edge(sender, receiver, _half_way(there, back), there.samples + back.samples))
    return edges


def _half_way(there: _Messages, back: _Messages) -> int:
    """clock(receiver) - clock(sender): the duration of a message cancels between both directions, as in NTP.

    Ends that coincide are more exact; otherwise the message that arrived soonest after its send began is used.
    """
    if max(there.spread, back.spread) <= TOGETHER_NS:
        return (there.median - back.median) // 2
    return (there.soonest - back.soonest) // 2


def _within_spread(rows: list[tuple[int, int, int, int, float | None]]) -> list[Edge]:
    return [Edge(a, b, d, n) for a, b, d, n, spread in rows if spread is None or spread <= MAX_SPREAD_NS]


def _named_edges(connection: duckdb.DuckDBPyConnection) -> list[Edge]:
    """Members of one communicator differ by the same time in every execution, within microseconds; others scatter.

    Of names with a constant difference the most frequent difference is used; pairs without any are connected last, by
    the most frequent of all differences.
    """
    edges = []
    rows = connection.execute(_NAMED_DIFFERENCES, [DENSE_NS]).fetchall()
    for anchor, rank, differences, steady in rows:
        values = np.array(differences, dtype=np.int64)
        sure = np.array(steady, dtype=np.bool_)
        if not sure.any() and np.median(np.abs(values - np.median(values))) > MAX_SPREAD_NS:
            continue
        centre, near = _densest(np.sort(values[sure] if sure.any() else values))
        edges.append(Edge(anchor, rank, centre, near if sure.any() and near >= NAMES_AGREE else 0))
    return edges


def _anonymous_edges(connection: duckdb.DuckDBPyConnection, connected: _ConnectedRanks) -> list[Edge]:
    """Partners have one difference between the sends of one and the receives of the other that recurs exactly.

    One rank of each set of connected ranks is compared with all ranks of the other sets.
    """
    ends: dict[int, list[tuple[int, bool, bool, int]]] = defaultdict(list)
    for rank, *event in connection.execute(_ANONYMOUS_ENDS, [MOST_ANONYMOUS]).fetchall():
        ends[rank].append(tuple(event))
    sets: dict[int, int] = {}
    for rank in sorted(ends):
        sets.setdefault(connected.root(rank)[0], rank)
    if len(sets) < 2 or len(sets) * len(ends) > MOST_PAIRS:
        return []
    edges = []
    arrays = {rank: np.array(events, dtype=np.int64) for rank, events in ends.items()}
    for anchor in sets.values():
        for rank in arrays:
            if not connected.are_connected(anchor, rank):
                centre, near = _densest(np.sort(_transfer_differences(arrays[anchor], arrays[rank])))
                if near >= max(3, MATCHED_SHARE * min(len(arrays[anchor]), len(arrays[rank]))):
                    edges.append(Edge(anchor, rank, centre, near))
    return edges


def _transfer_differences(here: NDArray[np.int64], there: NDArray[np.int64]) -> NDArray[np.int64]:
    """end(there) - end(here) of every send with every receive of the same step."""
    mine, others = here[:, None, :], there[None, :, :]
    fits = (mine[..., 0] == others[..., 0]) & (mine[..., 2] == others[..., 2])
    fits &= (mine[..., 1] != others[..., 1]) | (mine[..., 2] == 1)
    differences: NDArray[np.int64] = (others[..., 3] - mine[..., 3])[fits]
    return differences


def _densest(values: NDArray[np.int64]) -> tuple[int, int]:
    """(median, count) of the densest DENSE_NS window of sorted values."""
    if not len(values):
        return 0, 0
    above = np.searchsorted(values, values + DENSE_NS, side="right")
    counts = above - np.arange(len(values))
    first = int(np.argmax(counts))
    inside = values[first : int(above[first])]
    return int(np.median(inside)), len(inside)


class _ConnectedRanks:
    """Union-find of ranks whose edges carry clock differences."""

    def __init__(self) -> None:
        self._parent: dict[int, tuple[int, int]] = {}

    def are_connected(self, a: int, b: int) -> bool:
        return self.root(a)[0] == self.root(b)[0]

    def agrees(self, edge: Edge) -> bool:
        """Whether an edge agrees with how its ranks are connected; otherwise they are not partners."""
        difference = self.root(edge.rank)[1] - self.root(edge.anchor)[1]
        return abs(edge.difference - difference) <= 2 * DENSE_NS and edge.samples > 0

    def root(self, rank: int) -> tuple[int, int]:
        """(root, clock(rank) - clock(root)), with path compression."""
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

    def connect(self, edge: Edge) -> None:
        (root_a, offset_a), (root_b, offset_b) = self.root(edge.anchor), self.root(edge.rank)
        if root_a != root_b:
            self._parent[root_b] = (root_a, offset_a + edge.difference - offset_b)

    def offsets(self) -> dict[int, float]:
        return {rank: float(self.root(rank)[1]) for rank in self._parent}


def _relax(offsets: dict[int, float], edges: list[Edge]) -> dict[int, float]:
    """Distribute the disagreement of edges in cycles: damped averaging, weighted by samples."""
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


def _anchored(offsets: dict[int, float], connected: _ConnectedRanks) -> dict[int, int]:
    """Shift each set of connected ranks so that its lowest rank keeps its clock."""
    lowest: dict[int, int] = {}
    for rank in sorted(offsets):
        lowest.setdefault(connected.root(rank)[0], rank)
    return {rank: round(offsets[rank] - offsets[lowest[connected.root(rank)[0]]]) for rank in sorted(offsets)}
