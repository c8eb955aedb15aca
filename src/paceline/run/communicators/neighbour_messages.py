"""Messages of pipelines in which every two neighbouring stages have a communicator of their own.

The numbers in their links are then 0 on the earlier stage of a pair and 1 on the later one. A rank in the middle is in two
pairs and records both numbers; first and last stages record one. So

    stage size    = ranks that only record 0 = ranks that only record 1
    pair          (r, r + size) of a message with own number 0, (r - size, r) with own number 1

A receive records no link. On the outer stages there is one pair it can belong to. In the middle its end tells: it ends with
a send of its partner. Of a rank's receives as many belong to each neighbour as that neighbour sends to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import duckdb
import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int]

_RECEIVES = """
    SELECT rank, name, list(start + duration - coalesce(clock_offset, 0) ORDER BY start)
    FROM raw.collectives LEFT JOIN clock USING (rank)
    WHERE op = 'receive' AND "group" IS NULL AND start IS NOT NULL AND duration IS NOT NULL
      AND (name, rank) NOT IN (SELECT (name, rank) FROM inferred WHERE name IS NOT NULL)
    GROUP BY rank, name ORDER BY rank, name
"""
_SENDS = """
    SELECT rank, inferred_group, count(DISTINCT name),
           list(start + duration - coalesce(clock_offset, 0) ORDER BY start + duration)
    FROM raw.collectives JOIN inferred USING (name, rank) LEFT JOIN clock USING (rank)
    WHERE op = 'send' AND "group" IS NULL AND start IS NOT NULL AND duration IS NOT NULL
    GROUP BY rank, inferred_group ORDER BY rank
"""
_PAIRS = """
    SELECT inferred_group, list(rank ORDER BY index) FROM (SELECT DISTINCT inferred_group, rank, index FROM inferred)
    GROUP BY inferred_group HAVING count(*) = 2
"""


def stage_size(numbers: Mapping[int, frozenset[int]], world: int) -> int | None:
    """Ranks per stage, from each rank's own numbers in its messages; None if these are no pairs of neighbours.

    >>> stage_size({0: frozenset({0}), 1: frozenset({0, 1}), 2: frozenset({1})}, 3)
    1
    """
    first = sorted(rank for rank, own in numbers.items() if own == {0})
    last = sorted(rank for rank, own in numbers.items() if own == {1})
    middle = [rank for rank, own in numbers.items() if own == {0, 1}]
    size = len(first)
    whole = len(numbers) == world and len(first) + len(middle) + len(last) == world
    if not (whole and middle and size) or world % size:
        return None
    outer = first == list(range(size)) and last == list(range(world - size, world))
    return size if outer else None


def pair_of(rank: int, own: int | None, size: int, world: int) -> Pair | None:
    """The pair of a message by its rank's own number; None where only time can tell.

    >>> pair_of(4, 1, 4, 16), pair_of(4, None, 4, 16), pair_of(15, None, 4, 16)
    ((0, 4), None, (11, 15))
    """
    if own == 0 or rank < size:
        return (rank, rank + size)
    if own == 1 or rank >= world - size:
        return (rank - size, rank)
    return None


def receives_by_end(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, int, Pair]]:
    """(name, rank, pair) of receives in the middle of a pipeline, once clocks are aligned."""
    receives: dict[int, dict[str, NDArray[np.int64]]] = defaultdict(dict)
    for rank, name, ends in connection.execute(_RECEIVES).fetchall():
        receives[rank][name] = np.array(ends, dtype=np.int64)
    if not receives:
        return []
    pairs: dict[str, Pair] = {group: (ranks[0], ranks[1]) for group, ranks in connection.execute(_PAIRS).fetchall()}
    towards: dict[int, list[tuple[Pair, int, NDArray[np.int64]]]] = defaultdict(list)
    for sender, group, names, ends in connection.execute(_SENDS).fetchall():
        if (pair := pairs.get(group)) is not None:
            receiver = pair[0] if pair[1] == sender else pair[1]
            towards[receiver].append((pair, names, np.array(ends, dtype=np.int64)))
    return [(name, rank, pair) for rank, named in receives.items() for name, pair in _dealt(named, towards[rank])]


def _dealt(
    receives: Mapping[str, NDArray[np.int64]], senders: Sequence[tuple[Pair, int, NDArray[np.int64]]]
) -> Iterable[tuple[str, Pair]]:
    """Receives of one rank dealt to its two neighbours: to each as many as it sends, those whose ends are nearest."""
    if len(senders) != 2 or len(receives) != sum(count for _, count, _ in senders):
        return
    (one, count, ends), (other, _, other_ends) = senders
    nearer = {name: _distance(mine, ends) - _distance(mine, other_ends) for name, mine in receives.items()}
    order = sorted(receives, key=lambda name: (nearer[name], name))
    yield from ((name, one) for name in order[:count])
    yield from ((name, other) for name in order[count:])


def _distance(ends: NDArray[np.int64], others: NDArray[np.int64]) -> float:
    """Median distance to the nearest of the others, which are sorted."""
    at = np.searchsorted(others, ends)
    before, behind = others[np.maximum(at - 1, 0)], others[np.minimum(at, len(others) - 1)]
    return float(np.median(np.minimum(abs(ends - before), abs(behind - ends))))
