"""Communication operators one by one: time per rank, links and packet sizes of each.

An operator is shown in one of three ways, in this order of ids:

    class     operator × kind of group, per step                 the heaviest
    single    one collective of one step                         the longest
    named     a name of the graph over the chosen steps, mean    those asked for first, then the heaviest

`last` is the rank that most often arrived last: the others wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.metrics.collectives import with_derived
from paceline.metrics.table import RunTables, Source, Table, query

TOP_CLASSES = 8
TOP_COLLECTIVES = 12
TOP_NAMED = 20
MOST_LINKS = 150_000
"""Rows of links of all operators together, the longest first."""

_SHOWN = f"""
        rows AS (
            SELECT collectives.* REPLACE (coalesce(step, 0) AS step), coalesce(kind, '') AS kind
            FROM collectives LEFT JOIN group_kinds USING ("group") WHERE {{chosen}} AND duration IS NOT NULL
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
        ),
        asked AS (SELECT unnest({{asked}}::VARCHAR[]) AS name, unnest(range(len({{asked}}::VARCHAR[]))) AS wanted),
        named AS (
            SELECT name, op, kind, count(DISTINCT rank) AS members,
                   row_number() OVER (ORDER BY any_value(wanted) NULLS LAST, sum(duration) DESC, name, op, kind) AS place
            FROM rows LEFT JOIN asked USING (name) WHERE name IS NOT NULL GROUP BY name, op, kind
            -- A name of one step only is a single collective already.
            HAVING count(DISTINCT step) > 1 OR any_value(wanted) IS NOT NULL
            QUALIFY place <= {TOP_NAMED}
        ),
        arrived AS (
            SELECT rows.*, last_rank FROM rows LEFT JOIN collective_instances USING ("group", op, sequence)
        ),
        executions AS (
            SELECT place - 1 AS id, arrived.* FROM arrived JOIN classes USING (op, kind)
            UNION ALL
            SELECT {TOP_CLASSES} + place - 1, arrived.* FROM arrived JOIN singles USING ("group", op, sequence)
            UNION ALL
            SELECT {TOP_CLASSES + TOP_COLLECTIVES} + place - 1, arrived.* FROM arrived JOIN named USING (name, op, kind)
        ),
        lasts AS (
            SELECT id, mode(last_rank ORDER BY last_rank) AS last FROM executions WHERE rank = last_rank GROUP BY id
        )"""


def operator_names(run: Source, chosen: str, asked: Sequence[str] = ()) -> Table:
    """What can be shown: id, what (class, single, named), op, kind of group, name, step, members, last."""
    return query(
        run,
        f"""
        {_shown(chosen, asked)}
        SELECT id, what, op, kind, name, step, members, last FROM (
            SELECT place - 1 AS id, 'class' AS what, op, kind, NULL AS name, NULL AS step, members FROM classes
            UNION ALL
            SELECT {TOP_CLASSES} + place - 1, 'single', op, kind, name, step, members FROM singles
            UNION ALL
            SELECT {TOP_CLASSES + TOP_COLLECTIVES} + place - 1, 'named', op, kind, name, NULL, members FROM named
        ) LEFT JOIN lasts USING (id) ORDER BY id
        """,
    )


def operator_times(run: Source, chosen: str, asked: Sequence[str] = ()) -> Table:
    """Per operator of `operator_names` and rank: elapse, transit, wait, sync in ms per step."""
    return query(
        run,
        f"""
        {_shown(chosen, asked)}
        SELECT id, rank, sum(duration) / count(DISTINCT step) / 1e6 AS elapse,
               sum(transit) / count(DISTINCT step) / 1e6 AS transit, sum(wait) / count(DISTINCT step) / 1e6 AS wait,
               sum(sync) / count(DISTINCT step) / 1e6 AS sync
        FROM executions GROUP BY id, rank ORDER BY id, rank
        """,
    )


class OperatorTraffic:
    """Links and packets of the operators that are no class, sums over the steps chosen, ms and GB/s.

    Twice: as all ranks recorded them (`whose` = all), and as the rank that arrived last did (`whose` = last).

        bandwidth   = bytes / time
        utilisation = bandwidth / speed of the transport, as in `link_totals` of metrics/links.py, which must have been stored
    """

    def __init__(self, run: RunTables, chosen: str, asked: Sequence[str] = ()) -> None:
        self._run = run
        run.load(["transfers", "packets"])
        shown = _shown(chosen, asked)
        run.connection.execute(f"CREATE OR REPLACE TEMP TABLE operator_moved AS {shown}, {_MOVED} FROM moved_by")
        run.connection.execute(f"CREATE OR REPLACE TEMP TABLE operator_packed AS {shown}, {_PACKED} FROM packed_by")

    def links(self) -> Table:
        """Per operator, whose and link."""
        return query(
            self._run,
            f"""
            SELECT id, whose, src, dst, transport, {_TRAFFIC},
                   sum(bytes) >= 0.1 * max(sum(bytes)) OVER (PARTITION BY id, whose, transport) AS busy
            FROM operator_moved GROUP BY id, whose, src, dst, transport
            ORDER BY sum(duration) DESC, id, whose, src, dst LIMIT {MOST_LINKS}
            """,
        )

    def transports(self) -> Table:
        """Per operator, whose and transport."""
        return query(
            self._run,
            f"""
            SELECT id, whose, transport, count(DISTINCT (src, dst)) AS links, {_TRAFFIC}
            FROM operator_moved GROUP BY id, whose, transport ORDER BY id, whose, sum(duration) DESC, transport
            """,
        )

    def packets(self) -> Table:
        """Per operator, whose, transport and packet size."""
        return query(
            self._run,
            """
            SELECT id, whose, transport, packet_bytes, sum(count) AS count, sum(packet_bytes * count) AS bytes,
                   sum(duration) / 1e6 AS time, sum(packet_bytes * count) / nullif(sum(duration), 0) AS bandwidth
            FROM operator_packed GROUP BY id, whose, transport, packet_bytes
            ORDER BY id, whose, transport, packet_bytes
            """,
        )


_TRAFFIC = """
    sum(bytes) AS bytes, sum(duration) / 1e6 AS time, sum(bytes) / nullif(sum(duration), 0) AS bandwidth,
    sum(bytes) / nullif(sum(duration), 0) / any_value(speed) AS utilisation
"""

_OF_OPERATORS = f"""
        of_operators AS (
            SELECT DISTINCT id, rank, step, name, last FROM executions LEFT JOIN lasts USING (id) WHERE id >= {TOP_CLASSES}
        )"""

_WHOSE = "unnest(if(rank = last, ['all', 'last'], ['all']))"

_MOVED = f"""
        {_OF_OPERATORS},
        speeds AS (SELECT transport, any_value(speed) AS speed FROM link_totals GROUP BY transport),
        moved_by AS (
            SELECT id, {_WHOSE} AS whose, src, dst, transport, bytes, duration, speed
            FROM (FROM transfers SELECT * REPLACE (coalesce(step, 0) AS step))
            JOIN of_operators USING (rank, step, name) LEFT JOIN speeds USING (transport)
            WHERE scope = 'global' AND src <> dst
        )"""

_PACKED = f"""
        {_OF_OPERATORS},
        packed_by AS (
            SELECT id, {_WHOSE} AS whose, transport, packet_bytes, count, duration
            FROM (FROM packets SELECT * REPLACE (coalesce(step, 0) AS step)) JOIN of_operators USING (rank, step, name)
            WHERE packet_bytes > 0
        )"""


def _shown(chosen: str, asked: Sequence[str]) -> str:
    names = ", ".join("'" + name.replace("'", "''") + "'" for name in asked)
    return f"{with_derived('collective_instances')}, {_SHOWN.format(chosen=chosen, asked=f'[{names}]')}"
