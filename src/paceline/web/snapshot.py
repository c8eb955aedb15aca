"""A copy of a run's tables that answers at once: small tables as they are, large ones summed up.

It lives in a DuckDB file of its own, attached to the run's connection as `web`. Tables keep the names and columns of
docs/tables.md, so that the report's queries work on it unchanged; sums have names of their own.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from paceline.run.run import Run
from paceline.web.flops import RECORDED, add_flops

READ = ("ranks", "groups", "steps", "collectives", "links", "packets", "kernels", "operators", "ranks_memory", "memory",
        "flops", "input_pipeline", "input_steps", "host_calls", "counters")  # fmt: skip
"""Tables read before a run is ready; `events` waits until somebody opens the timeline."""

MEMORY_LIMIT = "2GB"

_COPIES = {
    "ranks": "SELECT * FROM ranks",
    "groups": "SELECT * FROM groups",
    "steps": "SELECT * FROM steps ORDER BY rank, step",
    "collectives": "SELECT * FROM collectives ORDER BY rank, start",
    "links": "SELECT * FROM links",
    "packets": """
        SELECT rank, step, transport, packet_bytes, sum(count)::BIGINT AS count, sum(duration)::BIGINT AS duration
        FROM packets GROUP BY ALL
    """,
    "ranks_memory": "SELECT * FROM ranks_memory",
    "memory": "SELECT * FROM memory ORDER BY rank, kind, time",
    "flops": f"SELECT *, '{RECORDED}' AS basis FROM flops",
    "input_pipeline": "SELECT * FROM input_pipeline",
    "input_steps": "SELECT * FROM input_steps ORDER BY rank, step",
    "host_calls": "SELECT * FROM host_calls",
    "counters": "SELECT * FROM counters ORDER BY rank, name, time",
    # Kernels where a rank has them, else what the recording itself summed up, in the finest grain it has.
    "operator_times": """
        WITH
        recorded AS (
            SELECT rank, coalesce(type, name) AS type, name, core, count(*) AS count, sum(duration)::BIGINT AS time,
                   min(duration) AS min, max(duration) AS max
            FROM kernels WHERE core IS DISTINCT FROM 'COMMUNICATION' GROUP BY ALL
        ),
        summed AS (
            SELECT *, min(level) OVER (PARTITION BY rank) AS finest FROM operators
            WHERE rank NOT IN (SELECT rank FROM recorded) AND core IS DISTINCT FROM 'COMMUNICATION'
        )
        FROM recorded
        UNION ALL
        SELECT rank, coalesce(type, name), if(level = 'name', name, NULL), core, count, time, min, max
        FROM summed WHERE level = finest
    """,
}

_SUMS = {
    "kinds": 'SELECT "group", any_value(kind) AS kind FROM web.groups GROUP BY "group"',
    # Arrival is the start on the cluster clock; without one, all leave together and the shortest stay came last.
    "meetings": """
        WITH arrived AS (
            SELECT *, coalesce(start, -duration) AS arrival FROM web.collectives
            WHERE op NOT IN ('send', 'receive') AND "group" IS NOT NULL AND sequence IS NOT NULL
        )
        SELECT "group", op, sequence, any_value(kind) AS kind, arg_min(name, rank) AS name, min(step) AS step,
               count(*) AS members, min(arrival) AS first_arrival, max(arrival) AS last_arrival,
               arg_max(rank, arrival) AS last_rank, max(arrival, 2)[2] AS before_arrival,
               (count(*)::HUGEINT * max(arrival) - sum(arrival))::BIGINT AS waited, max(duration) AS longest,
               min(duration) AS shortest, sum(bytes)::BIGINT AS bytes, sum(transit)::BIGINT AS transit,
               bool_or(start IS NOT NULL) AS clocked
        FROM arrived LEFT JOIN web.kinds USING ("group")
        GROUP BY "group", op, sequence HAVING count(*) > 1
    """,
    "rank_collectives": """
        SELECT rank, one.step, one.op, kinds.kind, count(*) AS calls, sum(duration)::BIGINT AS duration,
               sum(wait)::BIGINT AS wait, sum(one.transit)::BIGINT AS transit, sum(one.bytes)::BIGINT AS bytes,
               sum(least(duration, last_arrival - coalesce(start, -duration)))::BIGINT AS early,
               count(members) AS meetings, count(*) FILTER (rank = last_rank) AS last,
               sum(last_arrival - before_arrival) FILTER (rank = last_rank)::BIGINT AS held
        FROM web.collectives AS one
        LEFT JOIN web.meetings USING ("group", op, sequence)
        LEFT JOIN web.kinds AS kinds ON one."group" = kinds."group"
        GROUP BY ALL
    """,
    "link_sums": """
        SELECT src, dst, scope, "group", transport, sum(bytes)::BIGINT AS bytes, sum(duration)::BIGINT AS duration,
               sum(bytes) / nullif(sum(duration), 0) AS bandwidth
        FROM web.links GROUP BY ALL
    """,
    "link_classes": """
        SELECT transport, round(log2(greatest(bytes, 1)) / 2) AS size, median(bandwidth) AS usual, count(*) AS links
        FROM web.link_sums WHERE src <> dst GROUP BY ALL
    """,
    "stages": "SELECT rank, coalesce(stage, -1) AS stage FROM web.ranks",
    "counted_steps": "SELECT rank, count(*) AS steps FROM web.steps GROUP BY rank",
    "operator_usual": """
        WITH
        by_rank AS (
            SELECT rank, stage, type, name, sum(time) / any_value(greatest(coalesce(steps, 1), 1)) AS time
            FROM web.operator_times JOIN web.stages USING (rank) LEFT JOIN web.counted_steps USING (rank)
            GROUP BY GROUPING SETS ((rank, stage, type), (rank, stage, type, name))
        )
        SELECT stage, type, name, median(time) AS usual, count(*) AS ranks FROM by_rank GROUP BY ALL
    """,
}


class Snapshot:
    """The copy, asked through a cursor of its own: each request has one, so that it can be interrupted alone."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.cursor = cursor
        self.cursor.execute("USE web")

    def sql(self, query: str, /) -> duckdb.DuckDBPyRelation:
        return self.cursor.sql(query)


def make_snapshot(run: Run, scratch: Path, peak_rate: float | None = None) -> None:
    """Read what is needed and copy it; `scratch` is a directory of ours, `peak_rate` FLOP/s of one card."""
    connection = run.connection
    # Before anything is read: once used, the directory cannot be changed.
    connection.execute("SET temp_directory = ?", [str(scratch / "spill")])
    connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
    run.load(READ)
    file = str(scratch / "web.duckdb").replace("'", "''")
    connection.execute(f"ATTACH '{file}' AS web")
    for name, select in (_COPIES | _SUMS).items():
        connection.execute(f"CREATE TABLE web.{name} AS {select}")
    add_flops(run, peak_rate)
