"""Files of ranks that changed places: what one file of a rank tells of a step is what another rank's file says of it.

    kernel_details.csv    first kernel - preparing            against   trace_view.json        when the step began
    kernel_details.csv    first kernel of communication       against   communication.json     when the first collective began
    links of a group      the rank that they begin at         against   the places of the ranks in the group

Two ranks with each other's values, and not with their own, are no chance: these times differ by fractions of a microsecond
between files of one rank, by more between ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import duckdb

from paceline.core.message import message
from paceline.run.evidence.gap import EvidenceGap

MOST_COMPARED = 64
"""Ranks whose own files disagree and that are compared with the others: more are no exchange."""
EQUAL_NS = 2_000
"""Times of one event in two files of a rank differ by less; files round to microseconds."""
Moments = dict[int, dict[int, int]]
"""Rank → step → ns."""

_BEGINS = """
    WITH kernel AS (SELECT rank, step, min(start) AS first FROM raw.kernels WHERE step IS NOT NULL GROUP BY rank, step)
    SELECT rank, step, first - preparing, start FROM raw.steps JOIN kernel USING (rank, step)
    WHERE first IS NOT NULL AND preparing IS NOT NULL AND start IS NOT NULL
"""
_COMMUNICATION = """
    WITH kernel AS (
        SELECT rank, step, min(start) AS first FROM raw.kernels
        WHERE core = 'COMMUNICATION' AND step IS NOT NULL GROUP BY rank, step
    ),
    collective AS (SELECT rank, step, min(start) AS first FROM raw.collectives WHERE step IS NOT NULL GROUP BY rank, step)
    SELECT rank, step, kernel.first, collective.first FROM kernel JOIN collective USING (rank, step)
    WHERE kernel.first IS NOT NULL AND collective.first IS NOT NULL
"""
_SOURCES = """
    SELECT "group", rank, min(src) FROM raw.transfers
    WHERE "group" IS NOT NULL AND scope = 'group' AND src IS NOT NULL
    GROUP BY "group", rank HAVING min(src) = max(src) AND count(DISTINCT dst) > 1
"""
_PLACES = 'SELECT "group", rank, any_value("index") FROM raw.groups WHERE rank IS NOT NULL GROUP BY "group", rank'


def exchanged_times(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Timelines and communication files, by the kernels of the same rank."""
    begins = _exchanged(connection, _BEGINS)
    communication = [rank for rank in _exchanged(connection, _COMMUNICATION) if rank not in begins]
    found = ((begins, message("mixed_timeline")), (communication, message("mixed_communication")))
    return [EvidenceGap("conflict", tuple(ranks), said) for ranks, said in found if ranks]


def exchanged_links(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Links of a rank begin at it. Where nobody declares places in a group, they follow the order of the ranks."""
    sources: dict[str, dict[int, int]] = defaultdict(dict)
    for group, rank, source in connection.execute(_SOURCES).fetchall():
        sources[group][rank] = source
    places = {(group, rank): index for group, rank, index in connection.execute(_PLACES).fetchall()}
    strangers = {rank for group, of_rank in sources.items() for rank in _misplaced(group, of_rank, places)}
    return [EvidenceGap("conflict", tuple(sorted(strangers)), message("mixed_links"))] if strangers else []


def mutual_strangers(mine: Moments, stated: Moments) -> list[int]:
    """Pairs of ranks with each other's moments in all steps that they share, and with their own in none.

    >>> mutual_strangers({0: {1: 10_000}, 1: {1: 90_000}, 2: {1: 50_000}}, {0: {1: 90_100}, 1: {1: 10_100}, 2: {1: 50_100}})
    [0, 1]
    >>> mutual_strangers({0: {1: 10_000}, 1: {1: 90_000}}, {0: {1: 90_100}, 1: {1: 70_000}})
    []
    """
    strangers = [rank for rank in mine if not _agree(mine[rank], stated.get(rank, {}), any_step=True)]
    if len(strangers) > MOST_COMPARED:
        return []
    owners = {
        rank: {other for other in strangers if other != rank and _agree(mine[rank], stated[other])}
        for rank in strangers
    }
    return sorted(rank for rank, found in owners.items() if any(rank in owners[other] for other in found))


def _exchanged(connection: duckdb.DuckDBPyConnection, query: str) -> list[int]:
    mine: Moments = defaultdict(dict)
    stated: Moments = defaultdict(dict)
    for rank, step, moment, said in connection.execute(query).fetchall():
        mine[rank][step], stated[rank][step] = moment, said
    return mutual_strangers(mine, stated)


def _agree(mine: Mapping[int, int], stated: Mapping[int, int], *, any_step: bool = False) -> bool:
    """Whether the moments are equal in all steps that both have, or in any."""
    equal = [abs(mine[step] - stated[step]) <= EQUAL_NS for step in mine.keys() & stated.keys()]
    return any(equal) if any_step else bool(equal) and all(equal)


def _misplaced(group: str, sources: Mapping[int, int], places: Mapping[tuple[str, int], int]) -> list[int]:
    """Ranks of a group whose links begin at another member."""
    if len(set(sources.values())) < len(sources):
        return []  # every rank recorded the same links
    known = {rank: places.get((group, rank)) for rank in sources}
    if None in known.values():
        known = dict(zip(sorted(sources), sorted(sources.values()), strict=True))
    others = [rank for rank, source in sources.items() if source != known[rank]]
    return others if {sources[rank] for rank in others} == {known[rank] for rank in others} else []
