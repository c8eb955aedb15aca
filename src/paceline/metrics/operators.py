"""Operators on each rank, compared with the same operator on its peers: who needs longer for it.

Of each rank, by type or by name inside a type, over the steps that count:

    time        = sum(duration) / steps                                     per step
    mean        = sum(duration) / executions                                of one execution
    reference   = median of the fast half of the peers' means               see metrics/peers.py
    excess      = mean / reference - 1

Where only sums over the whole recording exist (table `operators`), these are taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.metrics.table import Source

OPERATOR_TIMES = """
    WITH
    recorded AS (
        SELECT rank, coalesce(type, name) AS type, name, core, count(*) AS count, sum(duration)::BIGINT AS time,
               min(duration) AS min, max(duration) AS max
        FROM kernels WHERE core IS DISTINCT FROM 'COMMUNICATION' AND {chosen} GROUP BY ALL
    ),
    summed AS (
        SELECT *, min(level) OVER (PARTITION BY rank) AS finest FROM operators
        WHERE rank NOT IN (SELECT rank FROM recorded) AND core IS DISTINCT FROM 'COMMUNICATION'
    )
    FROM recorded
    UNION ALL
    -- What the recording itself summed up, in the finest grain it has.
    SELECT rank, coalesce(type, name), if(level = 'name', name, NULL), core, count, time, min, max
    FROM summed WHERE level = finest
"""
"""One row per rank × type × name × core in the steps chosen (SQL on `step`), ns."""


def compared_operators(*, by_name: bool) -> str:
    """SELECT over `operator_times` and `rank_peers` (rank, peer_group, steps): the columns above, ms, per rank and operator."""
    keys = "rank, type, name" if by_name else "rank, type"
    return f"""
        WITH own AS (
            SELECT rank, type, {"name" if by_name else "NULL"} AS name, any_value(peer_group) AS peer_group,
                   string_agg(DISTINCT core, ', ') AS core, sum(count)::BIGINT AS count, sum(time) AS total,
                   sum(time) / any_value(greatest(coalesce(steps, 1), 1)) AS time, sum(time) / nullif(sum(count), 0) AS mean,
                   min(min) AS min, max(max) AS max
            FROM operator_times LEFT JOIN rank_peers USING (rank) {"WHERE name IS NOT NULL" if by_name else ""}
            GROUP BY {keys}
        ),
        placed AS (
            SELECT *, row_number() OVER (peers ORDER BY mean) AS place, count(*) OVER peers AS ranks FROM own
            WHERE peer_group IS NOT NULL WINDOW peers AS (PARTITION BY peer_group, type, name)
        ),
        referred AS (
            SELECT peer_group, type, name, median(mean) FILTER (place <= (ranks + 1) // 2) AS reference,
                   median(time) FILTER (place <= (ranks + 1) // 2) AS reference_time
            FROM placed GROUP BY peer_group, type, name HAVING any_value(ranks) > 1
        )
        SELECT own.rank, own.type, own.name, core, count, time / 1e6 AS time,
               total / sum(total) OVER (PARTITION BY own.rank) AS share, mean / 1e6 AS mean, reference / 1e6 AS reference,
               reference_time / 1e6 AS reference_time, mean / nullif(reference, 0) - 1 AS excess,
               min / 1e6 AS min, max / 1e6 AS max
        FROM own LEFT JOIN referred
          ON own.peer_group = referred.peer_group AND own.type = referred.type
             AND own.name IS NOT DISTINCT FROM referred.name
    """


@dataclass(frozen=True)
class OperatorTime:
    """One type of operator on one rank, ms."""

    type: str
    time: float
    reference_time: float
    """Per step, what peers need that run it at the reference speed."""
    mean: float
    reference: float
    excess: float


_KERNELS = """
    SELECT rank, step, type, core, duration FROM kernels
    WHERE rank IN ({ranks}) AND type IS NOT NULL AND core IS DISTINCT FROM 'COMMUNICATION' AND {chosen}
"""
_HOST_OPERATORS = """
    WITH
    calls AS (
        SELECT rank, track, name, start, duration, depth FROM events
        WHERE category = 'cpu_op' AND rank IN ({ranks}) AND NOT regexp_matches(name, '^(c10d::|record_param_comms$)')
    ),
    inside AS (
        SELECT caller.rank, caller.track, caller.start, caller.depth, sum(called.duration) AS time
        FROM calls AS called ASOF JOIN calls AS caller
          ON called.rank = caller.rank AND called.track = caller.track AND called.depth - 1 = caller.depth
             AND called.start >= caller.start
        WHERE called.start < caller.start + caller.duration
        GROUP BY ALL
    ),
    bounds AS (SELECT rank AS of_rank, step, start AS begin, "end" FROM steps WHERE start IS NOT NULL AND {chosen})
    SELECT rank, step, name AS type, 'CPU' AS core, greatest(0, duration - coalesce(time, 0)) AS duration
    FROM calls LEFT JOIN inside USING (rank, track, start, depth)
    ASOF JOIN bounds ON rank = of_rank AND start >= begin
    WHERE start < "end"
"""
"""Each operator without those that it calls."""


def kernels_against_peers(run: Source, rank: int, peers: Iterable[int], chosen: str) -> list[OperatorTime]:
    """The types of kernels a rank runs, compared with its peers (itself among them); only those that peers run too."""
    return _against_peers(run, rank, _KERNELS.format(ranks=_listed(peers), chosen=chosen))


def host_operators_against_peers(run: Source, rank: int, peers: Iterable[int], chosen: str) -> list[OperatorTime]:
    """The same of operators on the host, for recordings without a device; `events` must have been read."""
    return _against_peers(run, rank, _HOST_OPERATORS.format(ranks=_listed(peers), chosen=chosen))


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))


def _against_peers(run: Source, rank: int, executions: str) -> list[OperatorTime]:
    rows = run.sql(
        f"""
        WITH
        executed AS MATERIALIZED ({executions}),
        operator_times AS (
            SELECT rank, type, core, count(*) AS count, sum(duration) AS time, min(duration) AS min, max(duration) AS max
            FROM executed GROUP BY ALL
        ),
        rank_peers AS (SELECT rank, 0 AS peer_group, count(DISTINCT step) AS steps FROM executed GROUP BY rank)
        SELECT type, time, reference_time, mean, reference, excess FROM ({compared_operators(by_name=False)})
        WHERE rank = $rank AND reference IS NOT NULL
        """,
        params={"rank": rank},
    )
    return [OperatorTime(*row) for row in rows.fetchall()]
