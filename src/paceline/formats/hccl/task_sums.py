"""Sums of HCCL tasks (copies, reductions, notify waits): collectives, links and packets.

msprof traces and Ascend SQLite results have these tasks; both readers stage them in DuckDB and call this module.
Formulas, compared with CANN's analysis.db on 8 collectives of 2 ranks (equal to the nanosecond):

    move     = Memcpy or Reduce_Inline (SDMA), or RDMASend + RDMASend + Notify_Wait in a row on one plane (RDMA:
               payload, notification, acknowledgement; the wait belongs to the transfer)
    main     = the plane on which data first moves to or from another rank
    transit  = Σ duration of the moves to or from other ranks on the main plane
    wait     = Σ duration of Notify_Wait on the main plane, without acknowledgements
    sync     = the part of wait that began before the first move on the main plane
    idle     = duration - transit - wait
    bytes    = Σ size of the moves to or from other ranks on all planes

Planes run in parallel, so that waits are never added over planes: their sum can be several times the wall time.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np

from paceline.core.collective_names import hccl_sequence, op_of
from paceline.formats.base import Sink

LOCAL_RANK = 4294967295
"""What HCCL records for "this rank"."""


def create_staging(connection: duckdb.DuckDBPyConnection) -> None:
    """Create hccl_ops (one row per collective) and hccl_tasks (one per task; `op` is its collective)."""
    connection.execute("""
        CREATE OR REPLACE TEMP TABLE hccl_ops (
            op BIGINT, step BIGINT, "group" VARCHAR, name VARCHAR, start BIGINT, duration BIGINT)
    """)
    connection.execute("""
        CREATE OR REPLACE TEMP TABLE hccl_tasks (
            op BIGINT, plane BIGINT, kind VARCHAR, start BIGINT, duration BIGINT, src BIGINT, dst BIGINT,
            transport VARCHAR, link VARCHAR, size BIGINT)
    """)


def add_from_tasks(sink: Sink, tables: Sequence[str] = ("collectives", "transfers", "packets")) -> None:
    """Add the rows of the staged tasks, and drop the staging tables."""
    _name_operators(sink.connection)
    sink.connection.execute(_MOVES, {"local": LOCAL_RANK})
    for table in tables:
        sink.add_query(table, _QUERIES[table])
    for name in ("hccl_ops", "hccl_tasks", "hccl_moves", "hccl_names", "hccl_known"):
        sink.connection.execute(f"DROP TABLE IF EXISTS {name}")


def _name_operators(connection: duckdb.DuckDBPyConnection) -> None:
    """Create hccl_known: the collectives with operation and sequence from their names.

    Names without HCCL's counter ("Default/AllReduce-op534_0") are numbered 1,000,000 × step + position in the step:
    equal on two ranks for the same collective, even if one of them recorded fewer steps.
    """
    names = [
        name for (name,) in connection.execute("SELECT DISTINCT name FROM hccl_ops").fetchall() if name is not None
    ]
    counters = [hccl_sequence(name) for name in names]
    rows = {
        "name": np.array(names, dtype=object),
        "kind": np.array([op_of(name) for name in names], dtype=object),
        "counter": np.array([counter or 0 for counter in counters], dtype=np.int64),
        "counted": np.array([counter is not None for counter in counters], dtype=np.bool_),
    }
    connection.register("hccl_parsed", rows)
    connection.execute("""
        CREATE OR REPLACE TEMP TABLE hccl_names AS
        SELECT name::VARCHAR AS name, kind::VARCHAR AS kind, CASE WHEN counted THEN counter END AS counter
        FROM hccl_parsed
    """)
    connection.unregister("hccl_parsed")
    connection.execute("""
        CREATE OR REPLACE TEMP TABLE hccl_known AS
        SELECT hccl_ops.*, kind,
               coalesce(counter, 1000000 * coalesce(step, 0) - 1
                   + row_number() OVER (PARTITION BY step, "group", kind, counter ORDER BY start)) AS sequence
        FROM hccl_ops LEFT JOIN hccl_names USING (name)
    """)


_MOVES = """
    CREATE OR REPLACE TEMP TABLE hccl_moves AS
    WITH
    ordered AS (
        SELECT *,
               lag(kind) OVER plane_order AS previous_kind,
               lead(kind) OVER plane_order AS next_kind,
               lead(kind, 2) OVER plane_order AS third_kind,
               lead(duration) OVER plane_order AS next_duration,
               lead(duration, 2) OVER plane_order AS third_duration,
               lead(size) OVER plane_order AS next_size
        FROM hccl_tasks
        WINDOW plane_order AS (PARTITION BY op, plane ORDER BY start)
    ),
    marked AS (
        SELECT *,
               kind = 'RDMASend' AND next_kind IS NOT DISTINCT FROM 'RDMASend'
                   AND third_kind IS NOT DISTINCT FROM 'Notify_Wait' AS opens,
               kind = 'RDMASend' AND previous_kind IS NOT DISTINCT FROM 'RDMASend'
                   AND next_kind IS NOT DISTINCT FROM 'Notify_Wait' AS belongs
        FROM ordered
    ),
    moved AS (
        SELECT op, plane, start, src, dst, link, transport,
               CASE WHEN opens THEN duration + next_duration + third_duration ELSE duration END AS duration,
               CASE WHEN opens THEN coalesce(size, 0) + coalesce(next_size, 0) ELSE size END AS size,
               CASE WHEN opens THEN third_duration END AS wait,
               kind = 'RDMASend' AS remote_memory
        FROM marked
        WHERE opens
           OR (kind = 'RDMASend' AND NOT belongs)
           OR (kind IN ('Memcpy', 'Reduce_Inline') AND transport IS DISTINCT FROM 'RDMA')
    ),
    placed AS (
        SELECT * REPLACE (
                   CASE WHEN src = $local THEN dst ELSE src END AS src,
                   CASE WHEN dst = $local THEN src ELSE dst END AS dst)
        FROM moved
    )
    SELECT op, plane, start, duration, size, wait, src, dst,
           src IS NOT DISTINCT FROM dst OR link = 'ON_CHIP' AS local,
           CASE WHEN remote_memory THEN 'RDMA'
                WHEN src = dst OR link = 'ON_CHIP' THEN 'LOCAL'
                WHEN link LIKE 'HCCS%' THEN 'HCCS'
                WHEN link IN ('PCIE', 'SIO') THEN link
                WHEN link LIKE '%ROCE%' THEN 'RDMA'
                ELSE 'SDMA' END AS transport
    FROM placed
"""

_COLLECTIVES = """
    WITH
    first_moves AS (
        SELECT op, arg_min(plane, start) AS plane, min(start) AS first_move
        FROM hccl_moves WHERE NOT local GROUP BY op
    ),
    transits AS (
        SELECT op, sum(duration) AS transit, coalesce(sum(wait), 0) AS acknowledged
        FROM hccl_moves JOIN first_moves USING (op, plane) WHERE NOT local GROUP BY op
    ),
    waits AS (
        SELECT op, sum(duration) AS waited, coalesce(sum(duration) FILTER (start < first_move), 0) AS sync
        FROM hccl_tasks JOIN first_moves USING (op, plane) WHERE kind = 'Notify_Wait' GROUP BY op
    ),
    sizes AS (
        SELECT op, sum(size) AS bytes FROM hccl_moves WHERE NOT local GROUP BY op
    )
    SELECT step, "group", kind AS op, name, sequence, start, duration, transit::BIGINT AS transit,
           CASE WHEN transit IS NOT NULL THEN coalesce(waited, 0) - acknowledged END::BIGINT AS wait,
           CASE WHEN transit IS NOT NULL THEN coalesce(sync, 0) END::BIGINT AS sync,
           greatest(duration - transit - (coalesce(waited, 0) - acknowledged), 0)::BIGINT AS idle,
           bytes::BIGINT AS bytes
    FROM hccl_known
    LEFT JOIN transits ON transits.op = hccl_known.op
    LEFT JOIN waits ON waits.op = hccl_known.op
    LEFT JOIN sizes ON sizes.op = hccl_known.op
"""

_TRANSFERS = """
    SELECT ops.step, ops."group", ops.name, ops.sequence, src, dst, 'group' AS scope, transport,
           sum(size)::BIGINT AS bytes, sum(moves.duration)::BIGINT AS duration, sum(wait)::BIGINT AS wait
    FROM hccl_moves AS moves JOIN hccl_known AS ops USING (op)
    GROUP BY moves.op, ops.step, ops."group", ops.name, ops.sequence, src, dst, transport
"""

_PACKETS = """
    SELECT ops.step, ops."group", ops.name, ops.sequence, transport, size AS packet_bytes,
           count(*) AS count, sum(moves.duration)::BIGINT AS duration
    FROM hccl_moves AS moves JOIN hccl_known AS ops USING (op)
    WHERE NOT local AND size > 0
    GROUP BY moves.op, ops.step, ops."group", ops.name, ops.sequence, transport, size
"""

_QUERIES = {"collectives": _COLLECTIVES, "transfers": _TRANSFERS, "packets": _PACKETS}
