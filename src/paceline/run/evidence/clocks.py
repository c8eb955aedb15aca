"""Clocks against each other: they betray files that changed places between hosts.

causes    nobody leaves an all-reduce before all members have begun it, however long a member takes to notice its end; where
          a rank begins those of one step after the others have left them, as in no other step, the file of that step is
          another rank's
offsets   ranks of one host share its clock; if the ranks fall into as many clocks as there are hosts, and a host has ranks of
          two of them, their identities were exchanged
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise
from statistics import median

import duckdb

from paceline.core.message import message
from paceline.run.evidence.gap import EvidenceGap

FAR_NS = 1_000_000
"""Beginnings this long after the others' ends are not of one collective, clocks this far apart not of one host."""
CLOSE_NS = 200_000
"""…if all others are nearer to each other than this."""
FEWEST = 3
"""Collectives of a step that must agree."""
MOST_EVENTS = 2_000_000
"""Rows of `collectives` beyond which only some of them are compared."""

_IMPOSSIBLE = """
    WITH called AS (
        SELECT coalesce("group", name) AS shared, op, step, sequence, rank, any_value(start) AS start,
               any_value(start + duration) AS finish
        FROM collectives
        WHERE step IS NOT NULL AND sequence IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
          AND op IN ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier') AND hash(sequence) % ? = 0
        GROUP BY ALL HAVING count(*) = 1
    ),
    compared AS (
        SELECT rank, step, greatest(0, start - median(finish) OVER same) - greatest(0, median(start) OVER same - finish)
                           AS late,
               count(*) OVER same AS members
        FROM called WINDOW same AS (PARTITION BY shared, op, step, sequence)
    )
    SELECT rank, step, median(late) FROM compared WHERE members > 1 GROUP BY rank, step HAVING count(*) >= ?
"""
"""By how much a rank begins collectives after the others have left them (or leaves before they begin)."""


def reconcile_clocks(connection: duckdb.DuckDBPyConnection, collectives: int) -> list[EvidenceGap]:
    """Gaps that the aligned ends of `collectives` rows, and the offsets of the ranks, show."""
    share = 1 + collectives // MOST_EVENTS
    late: dict[int, dict[int, float]] = defaultdict(dict)
    for rank, step, value in connection.execute(_IMPOSSIBLE, [share, FEWEST]).fetchall():
        late[rank][step] = value
    gaps = []
    if displaced := displaced_steps(late):
        steps = ", ".join(map(str, sorted({step for steps in displaced.values() for step in steps})[:4]))
        gaps.append(EvidenceGap("conflict", tuple(sorted(displaced)), message("mixed_steps", list=steps)))
    offsets = connection.execute(
        "SELECT rank, host, clock.clock_offset FROM clock JOIN ranks USING (rank) WHERE host IS NOT NULL"
    ).fetchall()
    if strangers := exchanged_ranks({rank: (host, offset) for rank, host, offset in offsets}):
        gaps.append(EvidenceGap("conflict", strangers, message("mixed_clocks")))
    return gaps


def displaced_steps(late: Mapping[int, Mapping[int, float]]) -> dict[int, list[int]]:
    """Steps of each rank whose collectives lie far from the other members', if those of its other steps do not.

    >>> displaced_steps({0: {1: 9e6, 2: 0, 3: 20}, 1: {1: 0, 2: 0, 3: 0}, 2: {1: 9e6, 2: 9e6, 3: -9e6}})
    {0: [1]}
    """
    found = {}
    for rank, by_step in late.items():
        usual = median(map(abs, by_step.values()))
        far = [step for step, value in by_step.items() if abs(value) > FAR_NS]
        if far and usual < CLOSE_NS:
            found[rank] = sorted(far)
    return found


def exchanged_ranks(clocks: Mapping[int, tuple[str, int]]) -> tuple[int, ...]:
    """Ranks whose clock is not that of most ranks of their host, where hosts and clocks can be told; `clocks`: host, offset.

    >>> exchanged_ranks({0: ("a", 0), 1: ("a", 5_000_000), 2: ("b", 5_000_010), 3: ("b", 10)})
    (0, 1, 2, 3)
    >>> exchanged_ranks({0: ("a", 0), 1: ("a", 10), 2: ("b", 5_000_010), 3: ("b", 5_000_000)})
    ()
    """
    clock_of = _clusters({rank: offset for rank, (_, offset) in clocks.items()})
    hosts: dict[str, Counter[int]] = defaultdict(Counter)
    for rank, (host, _) in clocks.items():
        hosts[host][clock_of.get(rank, -1)] += 1
    if len(hosts) < 2 or not clock_of or len(set(clock_of.values())) > len(hosts):
        return ()
    usual = {host: [clock for clock, n in of.items() if 2 * n > of.total()] for host, of in hosts.items()}
    return tuple(sorted(rank for rank, (host, _) in clocks.items() if clock_of[rank] not in usual[host]))


def _clusters(offsets: Mapping[int, int]) -> dict[int, int]:
    """Number of the clock of each rank; none where offsets are neither close nor far."""
    ordered = sorted(offsets, key=lambda rank: offsets[rank])
    number, begin, found = 0, offsets[ordered[0]] if ordered else 0, dict.fromkeys(ordered[:1], 0)
    for before, rank in pairwise(ordered):
        if offsets[rank] - offsets[before] > FAR_NS:
            number, begin = number + 1, offsets[rank]
        elif offsets[rank] - begin > CLOSE_NS:
            return {}
        found[rank] = number
    return found
