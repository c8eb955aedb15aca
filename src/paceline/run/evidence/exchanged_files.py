"""Files of ranks that changed places: what one file of a rank tells of a step is what another rank's file says of it.

    kernel_details.csv    first kernel - preparing            against   trace_view.json        when the step began
    kernel_details.csv    first kernel of communication       against   communication.json     when the first collective began
    split of the steps    computing and not overlapped        against   durations of the step trace
    links of a group      the rank that they begin at         against   the places of the ranks in the group
    output_timeline_data  first operator of each step         when      the step trace has the first operator
    kernel_details.csv    first kernel of each step           in        trace_view.json
    operator_memory.csv   allocations                         in        memory_record.csv
    links                 by RDMA or within a host            as        the other end has it

Two ranks with each other's values, and not with their own, are no chance: these times differ by fractions of a microsecond
between files of one rank, by more between ranks. Where
one file holds moments of the other on some ranks, it does on all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import duckdb

from paceline.core.message import Message, message
from paceline.run.evidence.gap import EvidenceGap

MOST_COMPARED = 64
"""Ranks whose own files disagree and that are compared with the others: more are no exchange."""
EQUAL_NS = 2_000
"""Times of one event in two files of a rank differ by less; files round to microseconds."""
FIRST_NS = 10_000
"""The first operator of a step is noted this close to its kernel or collective."""
NEARLY_ALL = 0.9
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
_SPLITS = """
    SELECT rank, step, duration, computing + exposed + coalesce(free, 0) + coalesce(bubble, 0) FROM raw.steps
    WHERE step IS NOT NULL AND duration IS NOT NULL AND computing IS NOT NULL AND exposed IS NOT NULL
"""
_SOURCES = """
    SELECT "group", rank, min(src) FROM raw.transfers
    WHERE "group" IS NOT NULL AND scope = 'group' AND src IS NOT NULL
    GROUP BY "group", rank HAVING min(src) = max(src) AND count(DISTINCT dst) > 1
"""
_PLACES = 'SELECT "group", rank, any_value("index") FROM raw.groups WHERE rank IS NOT NULL GROUP BY "group", rank'


_TRANSPORTS = """
    WITH stated AS (
        SELECT src, dst, rank, bool_or(transport = 'RDMA') AS remote, bool_and(transport = 'RDMA') AS only_remote
        FROM transfers WHERE scope = 'global' AND transport IS NOT NULL AND src <> dst GROUP BY src, dst, rank
    )
    SELECT DISTINCT one.src, one.dst FROM stated AS one JOIN stated AS other USING (src, dst)
    WHERE one.only_remote AND NOT other.remote
"""
_FIRST_OPERATORS = """
    WITH operator AS (
        SELECT rank, step, start FROM raw.kernels UNION ALL
        SELECT rank, step, start FROM raw.collectives WHERE rank IN (SELECT rank FROM raw.kernels)
    ),
    moment AS (SELECT rank, step, min(start) AS first FROM operator WHERE step IS NOT NULL GROUP BY rank, step),
    begun AS (SELECT rank, first - start - data_wait AS late FROM raw.steps JOIN moment USING (rank, step))
    SELECT rank, if(bool_and(late < -?), 0, greatest(0.1, avg((abs(late) <= ?)::INT))) FROM begun
    WHERE late IS NOT NULL GROUP BY rank
"""
_IN_TIMELINE = """
    WITH moment AS (SELECT rank, min(start) AS start FROM raw.kernels WHERE step IS NOT NULL GROUP BY rank, step),
    shown AS (SELECT DISTINCT rank, start FROM raw.events SEMI JOIN moment USING (start))
    SELECT rank, avg((shown.start IS NOT NULL)::INT) FROM moment LEFT JOIN shown USING (rank, start)
    WHERE rank IN (SELECT rank FROM raw.events) GROUP BY rank
"""
_IN_SAMPLES = """
    WITH moment AS (SELECT rank, time FROM raw.memory WHERE kind = 'operator'),
    sampled AS (SELECT DISTINCT rank, time FROM raw.memory WHERE kind = 'sample')
    SELECT rank, avg((sampled.time IS NOT NULL)::INT) FROM moment LEFT JOIN sampled USING (rank, time)
    WHERE rank IN (SELECT rank FROM sampled) GROUP BY rank
"""


def foreign_kernels(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Nothing computes before its input is there; MindInsight's step trace notes when the first operator began."""
    said = message("mixed_operators")
    return _without_their_own(connection, _FIRST_OPERATORS, said, [FIRST_NS, FIRST_NS], core=True)


def foreign_timelines(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    return _without_their_own(connection, _IN_TIMELINE, message("mixed_kernels_timeline"))


def foreign_samples(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    return _without_their_own(connection, _IN_SAMPLES, message("mixed_memory"))


def exchanged_times(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Timelines and communication files, by the kernels of the same rank."""
    begins = _exchanged(connection, _BEGINS)
    communication = [rank for rank in _exchanged(connection, _COMMUNICATION) if rank not in begins]
    found = ((begins, message("mixed_timeline")), (communication, message("mixed_communication")))
    return [EvidenceGap("conflict", tuple(ranks), said) for ranks, said in found if ranks]


def exchanged_splits(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """What a file says steps consist of, where another one says how long they took (MindInsight)."""
    ranks = tuple(_exchanged(connection, _SPLITS))
    return [EvidenceGap("conflict", ranks, message("mixed_splits"))] if ranks else []


def exchanged_links(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Links of a rank begin at it. Where nobody declares places in a group, they follow the order of the ranks."""
    sources: dict[str, dict[int, int]] = defaultdict(dict)
    for group, rank, source in connection.execute(_SOURCES).fetchall():
        sources[group][rank] = source
    places = {(group, rank): index for group, rank, index in connection.execute(_PLACES).fetchall()}
    strangers = {rank for group, of_rank in sources.items() for rank in _misplaced(group, of_rank, places)}
    return [EvidenceGap("conflict", tuple(sorted(strangers)), message("mixed_links"))] if strangers else []


def exchanged_ends(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Both ends of a link, once ranks and groups are known, go over the network, or neither does."""
    links = connection.execute(_TRANSPORTS).fetchall()
    ends = tuple(sorted({rank for link in links for rank in link}))
    return [EvidenceGap("conflict", ends, message("mixed_ends"))] if ends else []


def mutual_strangers(mine: Moments, stated: Moments) -> list[int]:
    """Pairs of ranks with each other's moments in all steps in which they have not their own.

    >>> mutual_strangers({0: {1: 10_000}, 1: {1: 90_000}, 2: {1: 50_000}}, {0: {1: 90_100}, 1: {1: 10_100}, 2: {1: 50_100}})
    [0, 1]
    >>> mutual_strangers({0: {1: 10_000}, 1: {1: 90_000}}, {0: {1: 90_100}, 1: {1: 70_000}})
    []
    >>> mutual_strangers({0: {1: 10_000, 2: 60_000}, 1: {1: 90_000}}, {0: {1: 90_100, 2: 60_100}, 1: {1: 10_100}})
    [0, 1]
    """
    strange = {rank: _differing(moments, stated.get(rank, {})) for rank, moments in mine.items()}
    strange = {rank: moments for rank, moments in strange.items() if moments}
    if len(strange) > MOST_COMPARED:
        return []
    owners = {
        rank: {other for other in strange if other != rank and _agree(strange[rank], stated[other])} for rank in strange
    }
    return sorted(rank for rank, found in owners.items() if any(rank in owners[other] for other in found))


def _without_their_own(
    connection: duckdb.DuckDBPyConnection, query: str, said: Message, given: Sequence[int] = (), *, core: bool = False
) -> list[EvidenceGap]:
    """Ranks of which one file holds no moment of the other, if it holds nearly all on as many others."""
    shares = dict(connection.execute(query, list(given)).fetchall())
    fitting = [rank for rank, share in shares.items() if share >= NEARLY_ALL]
    foreign = tuple(sorted(rank for rank, share in shares.items() if not share))
    if not foreign or len(fitting) < len(foreign):
        return []
    return [EvidenceGap("disagreement", foreign, said, core=core)]


def _exchanged(connection: duckdb.DuckDBPyConnection, query: str) -> list[int]:
    mine: Moments = defaultdict(dict)
    stated: Moments = defaultdict(dict)
    for rank, step, moment, said in connection.execute(query).fetchall():
        mine[rank][step], stated[rank][step] = moment, said
    return mutual_strangers(mine, stated)


def _differing(mine: Mapping[int, int], stated: Mapping[int, int]) -> dict[int, int]:
    """Moments of the steps in which the other file states another one."""
    return {step: moment for step, moment in mine.items() if step in stated and abs(moment - stated[step]) > EQUAL_NS}


def _agree(mine: Mapping[int, int], stated: Mapping[int, int]) -> bool:
    """Whether the moments are equal in all steps that both have."""
    shared = mine.keys() & stated.keys()
    return bool(shared) and all(abs(mine[step] - stated[step]) <= EQUAL_NS for step in shared)


def _misplaced(group: str, sources: Mapping[int, int], places: Mapping[tuple[str, int], int]) -> list[int]:
    """Ranks of a group whose links begin at another member."""
    if len(set(sources.values())) < len(sources):
        return []  # every rank recorded the same links
    known = {rank: places.get((group, rank)) for rank in sources}
    if None in known.values():
        known = dict(zip(sorted(sources), sorted(sources.values()), strict=True))
    others = [rank for rank, source in sources.items() if source != known[rank]]
    return others if {sources[rank] for rank in others} == {known[rank] for rank in others} else []
