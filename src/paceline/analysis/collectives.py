"""Collectives: by class, one by one, by operator and rank, and by who arrives last."""

from __future__ import annotations

from paceline.analysis.table import Source, Table, query

_KINDS = 'kinds AS (SELECT "group", any_value(kind) AS kind, count(DISTINCT rank) AS size FROM groups GROUP BY "group")'

TOP_CLASSES = 8
TOP_COLLECTIVES = 12


def collective_classes(run: Source, chosen: str) -> Table:
    """Operator × kind of group; times are ms a step of one rank taking part, bandwidth = bytes / transit."""
    return query(
        run,
        f"""
        WITH {_KINDS},
        rows AS (SELECT collectives.*, kind, size FROM collectives LEFT JOIN kinds USING ("group") WHERE {chosen})
        SELECT op, coalesce(kind, '') AS kind, count(DISTINCT "group") AS groups, max(size) AS size,
               count(DISTINCT rank) AS ranks, count(*) AS calls,
               count(*) / count(DISTINCT (rank, step)) AS calls_per_step,
               sum(duration) / count(DISTINCT (rank, step)) / 1e6 AS time,
               sum(wait) / count(DISTINCT (rank, step)) / 1e6 AS wait,
               sum(transit) / count(DISTINCT (rank, step)) / 1e6 AS transit,
               sum(bytes) AS bytes, avg(bytes) AS bytes_per_call, sum(bytes) / nullif(sum(transit), 0) AS bandwidth
        FROM rows GROUP BY op, kind ORDER BY sum(duration) DESC NULLS LAST, op, kind
        """,
    )


def single_collectives(run: Source, chosen: str, *, most: int = 1_000) -> Table:
    """Each collective over its members, the longest first; times are ms.

        elapse       = last end - first arrival (where no start is known: the longest stay)
        transit, wait, sync, idle = mean over members, as the device recorded them
        late         = arrival of the last - median arrival: how long half of the members waited at least
        last_rank    = who arrived last
        bandwidth    = sum(bytes) / sum(transit), GB/s

    Send and receive have one partner each and no common arrival; they are left out.
    """
    return query(
        run,
        f"""
        SELECT "group", op, sequence, any_value(name ORDER BY rank) AS name, any_value(step) AS step, count(*) AS members,
               coalesce(max(start + duration) - min(start), max(duration)) / 1e6 AS elapse,
               avg(transit) / 1e6 AS transit, avg(wait) / 1e6 AS wait, avg(sync) / 1e6 AS sync, avg(idle) / 1e6 AS idle,
               (max(coalesce(start, -duration)) - median(coalesce(start, -duration))) / 1e6 AS late,
               arg_max(rank, coalesce(start, -duration)) AS last_rank,
               sum(bytes)::DOUBLE AS bytes, sum(bytes) / nullif(sum(transit), 0) AS bandwidth
        FROM collectives
        WHERE {chosen} AND op NOT IN ('send', 'receive') AND "group" IS NOT NULL AND sequence IS NOT NULL
              AND duration IS NOT NULL
        GROUP BY "group", op, sequence ORDER BY elapse DESC, "group", op, sequence LIMIT {most:d}
        """,
    )


def arrivals(run: Source, chosen: str) -> Table:
    """Per rank: in how many collectives it came last, how long it held all others up, how long it waited itself.

        held   = arrival of the last - arrival of the one before it, summed where this rank was last, ms a step
        waited = arrival of the last - own arrival, summed, ms a step
        expected = how often chance alone would make it last = sum(1 / members)

    Arrival is the start on the cluster clock. Where no start is known all are taken to leave together: the shortest
    stay came last. Send and receive have no common arrival and are left out.
    """
    return query(
        run,
        f"""
        WITH arrived AS (
            SELECT rank, step, "group", op, sequence, coalesce(start, -duration) AS arrival FROM collectives
            WHERE {chosen} AND op NOT IN ('send', 'receive') AND "group" IS NOT NULL AND sequence IS NOT NULL
        ),
        meetings AS (
            SELECT "group", op, sequence, count(*) AS members, max(arrival) AS last_arrival, arg_max(rank, arrival) AS last_rank,
                   list_reverse_sort(list(arrival))[2] AS before_arrival
            FROM arrived GROUP BY "group", op, sequence HAVING count(*) > 1
        )
        SELECT rank, count(*) AS meetings, count(*) FILTER (rank = last_rank) AS last,
               sum(1.0 / members)::DOUBLE AS expected,
               coalesce(sum(last_arrival - before_arrival) FILTER (rank = last_rank), 0) / count(DISTINCT step) / 1e6 AS held,
               sum(last_arrival - arrival) / count(DISTINCT step) / 1e6 AS waited
        FROM arrived JOIN meetings USING ("group", op, sequence)
        GROUP BY rank ORDER BY rank
        """,
    )


def operator_names(run: Source, chosen: str) -> Table:
    """What the per-operator chart can show: the heaviest classes (kind of row 'class'), then single collectives."""
    return query(
        run,
        f"""
        WITH {_KINDS}, {_RANKED.format(chosen=chosen)}
        SELECT id, what, op, kind, name, step, members FROM (
            SELECT place - 1 AS id, 'class' AS what, op, kind, NULL AS name, NULL AS step, members FROM classes
            UNION ALL
            SELECT {TOP_CLASSES} + place - 1, 'single', op, kind, name, step, members FROM singles
        ) ORDER BY id
        """,
    )


def operator_times(run: Source, chosen: str) -> Table:
    """Per operator of `operator_names` and rank: elapse, transit, wait, sync in ms (a step, for classes)."""
    return query(
        run,
        f"""
        WITH {_KINDS}, {_RANKED.format(chosen=chosen)},
        of_classes AS (
            SELECT place - 1 AS id, rank, sum(duration) / count(DISTINCT step) AS elapse,
                   sum(transit) / count(DISTINCT step) AS transit, sum(wait) / count(DISTINCT step) AS wait,
                   sum(sync) / count(DISTINCT step) AS sync
            FROM rows JOIN classes USING (op, kind) GROUP BY place, rank
        ),
        of_singles AS (
            SELECT {TOP_CLASSES} + place - 1 AS id, rows.rank, duration, transit, wait, sync
            FROM rows JOIN singles USING ("group", op, sequence)
        )
        SELECT id, rank, elapse / 1e6 AS elapse, transit / 1e6 AS transit, wait / 1e6 AS wait, sync / 1e6 AS sync
        FROM (FROM of_classes UNION ALL FROM of_singles) ORDER BY id, rank
        """,
    )


_RANKED = f"""
        rows AS (
            SELECT collectives.* REPLACE (coalesce(step, 0) AS step), coalesce(kind, '') AS kind
            FROM collectives LEFT JOIN kinds USING ("group") WHERE {{chosen}} AND duration IS NOT NULL
        ),
        classes AS (
            SELECT op, kind, count(DISTINCT rank) AS members,
                   row_number() OVER (ORDER BY sum(duration) DESC, op, kind) AS place
            FROM rows GROUP BY op, kind QUALIFY place <= {TOP_CLASSES}
        ),
        singles AS (
            SELECT "group", op, sequence, any_value(kind) AS kind, any_value(name ORDER BY rank) AS name,
                   any_value(step) AS step, count(DISTINCT rank) AS members,
                   row_number() OVER (ORDER BY max(duration) DESC, "group", op, sequence) AS place
            FROM rows WHERE op NOT IN ('send', 'receive') AND "group" IS NOT NULL AND sequence IS NOT NULL
            GROUP BY "group", op, sequence QUALIFY place <= {TOP_COLLECTIVES}
        )"""
