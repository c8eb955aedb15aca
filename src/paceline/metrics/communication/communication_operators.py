"""Communication operators one by one: time per rank, links and packet sizes of each.

An operator is shown in one of three ways, in this order of ids:

    class     operator × kind of group, per step                 the heaviest
    single    one collective of one step                         the longest
    named     a name of the graph over the chosen steps, mean    those asked for first, then the heaviest

`last` is the rank that most often arrived last: the others wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from paceline.metrics.communication.collectives import with_derived
from paceline.metrics.table import RunTables, Table, query

TOP_CLASSES = 8
TOP_COLLECTIVES = 12
TOP_NAMED = 20
MOST_LINKS = 150_000
"""Rows of links of all operators together, the longest first."""

_ROWS = """
        rows AS (
            SELECT collectives.* REPLACE (coalesce(step, 0) AS step), coalesce(kind, '') AS kind
            FROM collectives LEFT JOIN group_kinds USING ("group") WHERE {chosen} AND duration IS NOT NULL
        )"""

_CHOICES = f"""
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
        asked AS (SELECT unnest($asked::VARCHAR[]) AS name, unnest(range(len($asked::VARCHAR[]))) AS wanted),
        named AS (
            SELECT name, op, kind, count(DISTINCT rank) AS members,
                   row_number() OVER (ORDER BY any_value(wanted) NULLS LAST, sum(duration) DESC, name, op, kind) AS place
            FROM rows LEFT JOIN asked USING (name) WHERE name IS NOT NULL GROUP BY name, op, kind
            -- A name of one step only is a single collective already.
            HAVING count(DISTINCT step) > 1 OR any_value(wanted) IS NOT NULL
            QUALIFY place <= {TOP_NAMED}
        )
        SELECT place - 1 AS id, 'class' AS what, op, kind, NULL AS name, NULL AS step, members,
               NULL AS "group", NULL AS sequence
        FROM classes
        UNION ALL
        SELECT {TOP_CLASSES} + place - 1, 'single', op, kind, name, step, members, "group", sequence FROM singles
        UNION ALL
        SELECT {TOP_CLASSES + TOP_COLLECTIVES} + place - 1, 'named', op, kind, name, NULL, members, NULL, NULL FROM named
"""

_EXECUTION = "rank, arrived.step, duration, transit, wait, sync, last_rank"

_EXECUTIONS = f"""
        classes AS (FROM operator_choices WHERE what = 'class'),
        singles AS (FROM operator_choices WHERE what = 'single'),
        named AS (FROM operator_choices WHERE what = 'named'),
        arrived AS (
            SELECT rows.*, last_rank FROM rows LEFT JOIN collective_instances USING ("group", op, sequence)
        ),
        executions AS (
            SELECT id, {_EXECUTION} FROM arrived JOIN classes USING (op, kind)
            UNION ALL
            SELECT id, {_EXECUTION} FROM arrived JOIN singles USING ("group", op, sequence)
            UNION ALL
            SELECT id, {_EXECUTION} FROM arrived JOIN named USING (name, op, kind)
        )"""

_RANKS = """
        SELECT id, rank, count(DISTINCT step) AS steps, sum(duration) AS elapse, sum(transit) AS transit, sum(wait) AS wait,
               sum(sync) AS sync, count(*) FILTER (rank = last_rank) AS arrived_last
        FROM executions GROUP BY id, rank
"""

_EXECUTED = """
        singles AS (FROM operator_choices WHERE what = 'single'),
        named AS (FROM operator_choices WHERE what = 'named'),
        found AS (
            SELECT id, rank, rows.step, rows.name FROM rows JOIN singles USING ("group", op, sequence)
            UNION ALL
            SELECT id, rank, rows.step, name FROM rows JOIN named USING (name, op, kind)
        ),
        executed AS (SELECT DISTINCT found.*, last FROM found LEFT JOIN operator_lasts USING (id))
        SELECT id, rank, step, name, unnest(if(rank = last, ['all', 'last'], ['all'])) AS whose FROM executed
"""

_LASTS = """
        SELECT id, arg_max(rank, (arrived_last, -rank)) AS last FROM operator_ranks WHERE arrived_last > 0 GROUP BY id
"""

_MOVED = """
        WITH speeds AS (SELECT transport, any_value(speed) AS speed FROM link_totals GROUP BY transport)
        SELECT id, whose, src, dst, transport, bytes, duration, speed
        FROM (FROM transfers SELECT * REPLACE (coalesce(step, 0) AS step))
        JOIN operator_executed USING (rank, step, name) LEFT JOIN speeds USING (transport)
        WHERE scope = 'global' AND src <> dst
"""

_PACKED = """
        SELECT id, whose, transport, packet_bytes, count, duration
        FROM (FROM packets SELECT * REPLACE (coalesce(step, 0) AS step)) JOIN operator_executed USING (rank, step, name)
        WHERE packet_bytes > 0
"""


_CREATE = "CREATE OR REPLACE TEMP TABLE"


class CommunicationOperators:
    """The operators of the steps chosen (SQL on `step`), those asked for by name first.

    Links and packets are those of single and named operators, sums over the steps, ms and GB/s. Twice: as all ranks recorded
    them (`whose` = all), and as the rank that arrived last did (`whose` = last).

        bandwidth   = bytes / time
        utilisation = bandwidth / speed of the transport, as in `link_totals` of metrics/network/links.py, which must be stored
    """

    def __init__(self, run: RunTables, chosen: str, asked: Sequence[str] = ()) -> None:
        self._run = run
        run.load(["collectives", "transfers", "packets"])
        rows = f"{with_derived('collective_instances')}, {_ROWS.format(chosen=chosen)}"
        run.connection.execute(f"{_CREATE} operator_choices AS {rows}, {_CHOICES}", {"asked": list(asked)})
        run.connection.execute(f"{_CREATE} operator_ranks AS {rows}, {_EXECUTIONS} {_RANKS}")
        run.connection.execute(f"{_CREATE} operator_lasts AS {_LASTS}")
        run.connection.execute(f"{_CREATE} operator_executed AS {rows}, {_EXECUTED}")

    def names(self) -> Table:
        """What can be shown: id, what (class, single, named), op, kind of group, name, step, members, last."""
        return query(
            self._run,
            """
            SELECT id, what, op, kind, name, step, members, last
            FROM operator_choices LEFT JOIN operator_lasts USING (id) ORDER BY id
            """,
        )

    def times(self) -> Table:
        """Per operator of `names` and rank: elapse, transit, wait, sync, later_wait and idle in ms per step.

        later_wait = wait - sync                waiting after the first byte
        idle       = elapse - transit - wait    neither; both at least 0, and unknown where neither was recorded
        """
        return query(
            self._run,
            """
            WITH per_step AS (
                SELECT id, rank, elapse / steps / 1e6 AS elapse, transit / steps / 1e6 AS transit,
                       wait / steps / 1e6 AS wait, sync / steps / 1e6 AS sync,
                       transit IS NULL AND wait IS NULL AS is_whole
                FROM operator_ranks
            )
            SELECT * EXCLUDE (is_whole),
                   if(is_whole, NULL, greatest(0, coalesce(wait, 0) - coalesce(sync, 0))) AS later_wait,
                   if(is_whole, NULL, greatest(0, elapse - coalesce(transit, 0) - coalesce(wait, 0))) AS idle
            FROM per_step ORDER BY id, rank
            """,
        )

    @cached_property
    def _moved(self) -> str:
        """Name of the table of what the operators moved."""
        self._run.connection.execute(f"{_CREATE} operator_moved AS {_MOVED}")
        return "operator_moved"

    def links(self) -> Table:
        """Per operator, whose and link."""
        return query(
            self._run,
            f"""
            SELECT id, whose, src, dst, transport, {_TRAFFIC},
                   sum(bytes) >= 0.1 * max(sum(bytes)) OVER (PARTITION BY id, whose, transport) AS busy
            FROM {self._moved} GROUP BY id, whose, src, dst, transport
            ORDER BY sum(duration) DESC, id, whose, src, dst LIMIT {MOST_LINKS}
            """,
        )

    def transports(self) -> Table:
        """Per operator, whose and transport."""
        return query(
            self._run,
            f"""
            SELECT id, whose, transport, count(DISTINCT (src, dst)) AS links, {_TRAFFIC}
            FROM {self._moved} GROUP BY id, whose, transport ORDER BY id, whose, sum(duration) DESC, transport
            """,
        )

    def packets(self) -> Table:
        """Per operator, whose, transport and packet size."""
        return query(
            self._run,
            f"""
            SELECT id, whose, transport, packet_bytes, sum(count) AS count, sum(packet_bytes * count) AS bytes,
                   sum(duration) / 1e6 AS time, sum(packet_bytes * count) / nullif(sum(duration), 0) AS bandwidth
            FROM ({_PACKED}) GROUP BY id, whose, transport, packet_bytes
            ORDER BY id, whose, transport, packet_bytes
            """,
        )


_TRAFFIC = """
    sum(bytes) AS bytes, sum(duration) / 1e6 AS time, sum(bytes) / nullif(sum(duration), 0) AS bandwidth,
    sum(bytes) / nullif(sum(duration), 0) / any_value(speed) AS utilisation
"""
