"""Clocks against each other: they betray files that changed places between hosts.

causes    nobody leaves an all-reduce before all members have begun it, however long a member takes to notice its end; where
          a rank begins those of one step after the others have left them, and no error of its clock explains that together
          with its other steps, the file of that step is another rank's
offsets   ranks of one host share its clock; if the ranks fall into as many clocks as there are hosts, and a host has ranks of
          two of them, their identities were exchanged
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import duckdb

from paceline.core.collective_names import LAUNCHES
from paceline.core.message import message
from paceline.run.evidence.gap import EvidenceGap

FAR_NS = 1_000_000
"""Beginnings this long after the others' ends are not of one collective, clocks this far apart not of one host."""
CLOSE_NS = 200_000
"""…if all others are nearer to each other than this."""
FEWEST = 3
"""Collectives of a step that must agree."""
AROUND = 16
"""Steps before and after one that say what the clock of its rank is."""
MOST_EVENTS = 2_000_000
"""Rows of `collectives` beyond which only some of them are compared."""

_MARGINS = """
    WITH called AS (
        SELECT coalesce("group", name) AS shared, op, step, sequence, rank, any_value(start) AS start,
               any_value(start + duration) AS finish
        FROM collectives
        WHERE step IS NOT NULL AND sequence IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
          AND op IN ('all_reduce', 'all_gather', 'reduce_scatter', 'barrier') AND hash(sequence) % ? = 0
          AND NOT regexp_matches(coalesce(name, ''), ?)
        GROUP BY ALL HAVING count(*) = 1
    ),
    compared AS (
        SELECT rank, step, start - median(finish) OVER same AS begins_after, median(start) OVER same - finish AS ends_before,
               abs(finish - median(finish) OVER same) AS ends_apart, count(*) OVER same AS members
        FROM called WINDOW same AS (PARTITION BY shared, op, step, sequence)
    )
    SELECT rank, step, median(begins_after), median(ends_before), median(ends_apart)
    FROM compared WHERE members > 1 GROUP BY rank, step HAVING count(*) >= ? ORDER BY rank, step
"""
"""By how much a rank begins collectives after the others have left them, and leaves them before the others begin: below 0
on right clocks. Members of an all-to-all may exchange nothing, and those of a broadcast need not wait."""


@dataclass(frozen=True)
class StepMargins:
    """ns by which a rank's collectives of one step begin after the others' ends, end before the others' beginnings, and
    end before or after the others' ends."""

    step: int
    begins_after: float
    ends_before: float
    ends_apart: float


def reconcile_clocks(connection: duckdb.DuckDBPyConnection, collectives: int) -> list[EvidenceGap]:
    """Gaps that the aligned ends of `collectives` rows, and the offsets of the ranks, show."""
    share = 1 + collectives // MOST_EVENTS
    margins: dict[int, list[StepMargins]] = defaultdict(list)
    for rank, *values in connection.execute(_MARGINS, [share, LAUNCHES, FEWEST]).fetchall():
        margins[rank].append(StepMargins(*values))
    gaps = []
    if displaced := displaced_steps(margins):
        steps = ", ".join(map(str, sorted({step for steps in displaced.values() for step in steps})[:4]))
        gaps.append(EvidenceGap("conflict", tuple(sorted(displaced)), message("mixed_steps", list=steps)))
    offsets = connection.execute(
        "SELECT rank, host, clock.clock_offset FROM clock JOIN ranks USING (rank) WHERE host IS NOT NULL"
    ).fetchall()
    if strangers := exchanged_ranks({rank: (host, offset) for rank, host, offset in offsets}):
        gaps.append(EvidenceGap("conflict", strangers, message("mixed_clocks")))
    return gaps


def displaced_steps(margins: Mapping[int, Sequence[StepMargins]]) -> dict[int, list[int]]:
    """Steps of each rank (in order) that no clock of the rank explains together with the steps around them.

    >>> usual = [StepMargins(step, -2e6, -9e5, 5e6) for step in range(5)]
    >>> displaced_steps({0: [*usual[:2], StepMargins(2, 3e6, -7e6, 5e6), *usual[3:]], 1: usual})
    {0: [2]}
    """
    found = {
        rank: [steps[at].step for at in range(len(steps)) if _is_displaced(steps, at)]
        for rank, steps in margins.items()
    }
    return {rank: steps for rank, steps in found.items() if steps}


def _is_displaced(steps: Sequence[StepMargins], at: int) -> bool:
    """By the steps around it alone: clocks drift against each other in hours."""
    here = steps[at]
    around = [*steps[max(0, at - AROUND) : at], *steps[at + 1 : at + 1 + AROUND]]
    if not around or max(here.begins_after, here.ends_before) <= FAR_NS:
        return False
    late, early = _clock_error(around)
    return here.begins_after - late > FAR_NS or here.ends_before - early > FAR_NS


def _clock_error(steps: Sequence[StepMargins]) -> tuple[float, float]:
    """By how much the clock of a rank may be late, and early: clocks are aligned by ends, which threads notice late.

    Where ends agree as those of devices do, they are right; otherwise right is what reverses no causes in the other steps.
    """
    apart = _most([each.ends_apart for each in steps])
    if apart < CLOSE_NS:
        return apart, apart
    return -_most([each.ends_before for each in steps]), -_most([each.begins_after for each in steps])


def _most(values: Sequence[float]) -> float:
    """Exceeded by a fifth at most: some of the others may be displaced too.

    >>> _most([-3, -1, -2, -4]), _most([1, 2, 3, 4, 5, 6, 7, 8, 9, 99])
    (-1, 8)
    """
    return sorted(values)[4 * (len(values) - 1) // 5 if len(values) > 4 else -1]


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
    if len(hosts) < 2 or not clock_of or not _as_many(hosts.values(), clock_of.values()):
        return ()
    usual = {host: [clock for clock, n in of.items() if 2 * n > of.total()] for host, of in hosts.items()}
    return tuple(sorted(rank for rank, (host, _) in clocks.items() if clock_of[rank] not in usual[host]))


def _as_many(hosts: Iterable[Counter[int]], clocks: Iterable[int]) -> bool:
    """Whether as many ranks have each clock as are on each host: exchanges change nothing about that, noise does."""
    return sorted(of.total() for of in hosts) == sorted(Counter(clocks).values())


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
