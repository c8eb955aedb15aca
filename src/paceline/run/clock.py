"""One clock for the cluster: offsets of all ranks, from collectives that end everywhere at the same moment.

A collective ends on all its members within microseconds, however late some of them arrived. So for two members a and
b the median of end(b) - end(a) over many collectives is the difference of their clocks:

    offset(b) - offset(a) = median over shared collectives of (end(b) - end(a))

Groups tie ranks together; sends and receives tie pipeline stages where no group does. Where a send does not wait for its
receive, their ends tell nothing; but no message arrives before it was sent, and some find the receiver waiting:

    offset(b) - offset(a) = (min over messages a → b of (end(b) - start(a)) - the same of b → a) / 2

The lowest rank of each set of tied ranks keeps its own clock. Steps and links in between are not needed, and skew of any
size is found.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

MAX_SPREAD_NS = 2_000_000
"""Ends that scatter more than this (median absolute deviation) are not the same collective."""
DENSE_NS = 4_000
"""Ends of one collective agree within this, mostly."""
TOGETHER_NS = 20_000
"""Sends and receives that wait for each other end together within this; others were buffered on their way."""
NAMES_AGREE = 3
"""Operator names that show the same difference; one or two strangers can do so by chance."""
MOST_ANONYMOUS = 64
"""Sends and receives of a step that are looked at."""
MOST_PAIRS = 50_000
TALKS = 0.25
"""A pair that talks has at least this share of its sends and receives with each other."""
_SWEEPS = 50

_COLLECTIVE_EDGES = """
    WITH ends AS (
        SELECT "group" AS tie, op, coalesce(step, -1) AS step, sequence, rank, start + duration AS finish
        FROM collectives
        WHERE "group" IS NOT NULL AND sequence IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
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

# Without groups, equal names may stand for collectives of different communicators: many differences are of strangers.
_NAMED_DIFFERENCES = """
    WITH ends AS (
        SELECT name, coalesce(step, -1) AS step, sequence, rank, start + duration AS finish
        FROM collectives
        WHERE "group" IS NULL AND sequence IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
          AND op NOT IN ('send', 'receive', 'send_receive')
        QUALIFY count(*) OVER (PARTITION BY name, step, sequence, rank) = 1
    ),
    neighbours AS (
        -- Each rank with the few nearest that share its names: enough to tie all, linear in ranks.
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
               count(*) > 1 AND max(difference) - min(difference) <= {dense} AS steady
        FROM differences GROUP BY anchor, rank, name
    ) GROUP BY anchor, rank ORDER BY anchor, rank
"""

_MESSAGES = """
    WITH numbered AS (
        SELECT "group" AS tie, rank, op, start, start + duration AS finish,
               row_number() OVER (PARTITION BY "group", rank, op ORDER BY start) AS place
        FROM collectives
        WHERE op IN ('send', 'receive') AND "group" IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
          AND "group" IN (SELECT "group" FROM collectives GROUP BY "group" HAVING count(DISTINCT rank) = 2)
    ),
    messages AS (
        SELECT sent.rank AS sender, received.rank AS receiver, received.finish - sent.finish AS difference,
               received.finish - sent.start AS travel
        FROM numbered AS sent JOIN numbered AS received USING (tie, place)
        WHERE sent.op = 'send' AND received.op = 'receive' AND sent.rank <> received.rank
    ),
    typical AS (
        SELECT sender, receiver, quantile_disc(difference, 0.5) AS usual, min(travel) AS soonest, count(*) AS samples
        FROM messages GROUP BY ALL
    )
    SELECT sender, receiver, any_value(usual)::BIGINT, any_value(soonest)::BIGINT, any_value(samples),
           quantile_disc(abs(difference - usual), 0.9)::BIGINT
    FROM messages JOIN typical USING (sender, receiver) GROUP BY sender, receiver ORDER BY sender, receiver
"""

# Sends and receives that tell neither group nor partner.
_ANONYMOUS_ENDS = """
    SELECT rank, coalesce(step, -1) AS step, op = 'receive' AS receives, op = 'send_receive' AS both,
           start + duration AS finish
    FROM collectives
    WHERE op IN ('send', 'receive', 'send_receive') AND start IS NOT NULL AND duration IS NOT NULL
      AND ("group" IS NULL OR "group" IN (SELECT "group" FROM collectives GROUP BY "group" HAVING count(DISTINCT rank) > 2))
    QUALIFY row_number() OVER (PARTITION BY rank, step ORDER BY start) <= {most}
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

    usual: int
    """Median of end(receive) - end(send)."""
    soonest: int
    """Least end(receive) - start(send)."""
    samples: int
    spread: int
    """How far from the median nine of ten end differences are at most."""


def clock_offsets(connection: duckdb.DuckDBPyConnection) -> dict[int, int]:
    """ns to subtract from each rank's timestamps; ranks that share nothing with others are left out."""
    ties = _Ties()
    refined: list[Edge] = []

    def add(edges: list[Edge]) -> None:
        # The later kinds only tie what the earlier left apart: they agree less well.
        fresh = [edge for edge in edges if not ties.tied(edge.anchor, edge.rank)]
        for edge in sorted(fresh, key=lambda edge: -edge.samples):
            ties.tie(edge)
        refined.extend(edge for edge in fresh if ties.agrees(edge))

    named = _named_edges(connection)
    add(_grouped_edges(connection))
    add([edge for edge in named if edge.samples])
    add(_neighbour_edges(connection))
    add(_anonymous_edges(connection, ties))
    add([edge for edge in named if not edge.samples])
    return _anchored(_relax(ties.offsets(), refined), ties)


def _grouped_edges(connection: duckdb.DuckDBPyConnection) -> list[Edge]:
    return _within_spread(connection.execute(_COLLECTIVE_EDGES).fetchall())


def _neighbour_edges(connection: duckdb.DuckDBPyConnection) -> list[Edge]:
    messages = {(row[0], row[1]): _Messages(*row[2:]) for row in connection.execute(_MESSAGES).fetchall()}
    edges = []
    for (sender, receiver), there in messages.items():
        back = messages.get((receiver, sender))
        if back is None:
            difference = there.usual if there.spread <= TOGETHER_NS else there.soonest
            edges.append(Edge(sender, receiver, difference, there.samples))
        elif sender < receiver:
            edges.append(Edge(sender, receiver, _half_way(there, back), there.samples + back.samples))
    return edges


def _half_way(there: _Messages, back: _Messages) -> int:
    """clock(receiver) - clock(sender): what a message takes cancels between both directions, as in NTP.

    Ends that coincide are the sharper measure; else the message that came soonest after its send began.
    """
    if max(there.spread, back.spread) <= TOGETHER_NS:
        return (there.usual - back.usual) // 2
    return (there.soonest - back.soonest) // 2


def _within_spread(rows: list[tuple[int, int, int, int, float | None]]) -> list[Edge]:
    return [Edge(a, b, d, n) for a, b, d, n, spread in rows if spread is None or spread <= MAX_SPREAD_NS]


def _named_edges(connection: duckdb.DuckDBPyConnection) -> list[Edge]:
    """True partners differ by the same in every execution, to microseconds; strangers scatter.

    Of the names that are steady the densest difference counts; a pair without any is tied by whatever is densest, last.
    """
    edges = []
    rows = connection.execute(_NAMED_DIFFERENCES.format(dense=DENSE_NS)).fetchall()
    for anchor, rank, differences, steady in rows:
        values = np.array(differences, dtype=np.int64)
        sure = np.array(steady, dtype=np.bool_)
        if not sure.any() and np.median(np.abs(values - np.median(values))) > MAX_SPREAD_NS:
            continue
        centre, near = _densest(np.sort(values[sure] if sure.any() else values))
        edges.append(Edge(anchor, rank, centre, near if sure.any() and near >= NAMES_AGREE else 0))
    return edges


def _anonymous_edges(connection: duckdb.DuckDBPyConnection, ties: _Ties) -> list[Edge]:
    """Whoever a rank talks to: of all differences between its sends and another's receives, one recurs to the microsecond.

    One rank of each set of tied ranks is held against all ranks of the other sets.
    """
    ends: dict[int, list[tuple[int, bool, bool, int]]] = defaultdict(list)
    for rank, *event in connection.execute(_ANONYMOUS_ENDS.format(most=MOST_ANONYMOUS)).fetchall():
        ends[rank].append(tuple(event))
    sets: dict[int, int] = {}
    for rank in sorted(ends):
        sets.setdefault(ties.root(rank)[0], rank)
    if len(sets) < 2 or len(sets) * len(ends) > MOST_PAIRS:
        return []
    edges = []
    arrays = {rank: np.array(events, dtype=np.int64) for rank, events in ends.items()}
    for anchor in sets.values():
        for rank in arrays:
            if not ties.tied(anchor, rank):
                centre, near = _densest(np.sort(_transfer_differences(arrays[anchor], arrays[rank])))
                if near >= max(3, TALKS * min(len(arrays[anchor]), len(arrays[rank]))):
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
    """(where most values lie within DENSE_NS, how many do) of sorted values."""
    if not len(values):
        return 0, 0
    above = np.searchsorted(values, values + DENSE_NS, side="right")
    counts = above - np.arange(len(values))
    first = int(np.argmax(counts))
    inside = values[first : int(above[first])]
    return int(np.median(inside)), len(inside)


class _Ties:
    """Union-find whose links carry clock differences."""

    def __init__(self) -> None:
        self._parent: dict[int, tuple[int, int]] = {}

    def tied(self, a: int, b: int) -> bool:
        return self.root(a)[0] == self.root(b)[0]

    def agrees(self, edge: Edge) -> bool:
        """Whether an edge fits what ties its ends already; one that does not joins strangers."""
        difference = self.root(edge.rank)[1] - self.root(edge.anchor)[1]
        return abs(edge.difference - difference) <= 2 * DENSE_NS and edge.samples > 0

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
