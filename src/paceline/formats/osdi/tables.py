"""The operations of an OSDI'25 straggler trace as tables.

Groups are named after what their members share: `dp-stage2` (all workers of stage 2), `pp-dp0` (the pipeline of worker
column 0), `embedding-dp0` (its first and last stage), `tp-dp0-stage2`, `world`. A send and its receive have the same
group and sequence; messages without another side (osdi/messages.py) have neither. In an interleaved pipeline the chunk
of the model follows the name: `forward-compute #1`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paceline.core.message import message
from paceline.formats.base import Sink
from paceline.formats.intervals import IntervalUnion, Times, merge_intervals
from paceline.formats.osdi.messages import MATCHED

_COMPUTE = ("forward-compute", "backward-compute", "optimizer")
_HOST = ("gc", "dataloader")

_COMMUNICATION = (
    # operation type, collective, group, distance to the stage of the peer
    ("forward-send", "send", "pp", 1),
    ("forward-recv", "receive", "pp", -1),
    ("backward-send", "send", "pp", -1),
    ("backward-recv", "receive", "pp", 1),
    ("grads-reduce-scatter", "reduce_scatter", "dp", None),
    ("grads-all-reduce", "all_reduce", "dp", None),
    ("separate-grads-all-reduce", "all_reduce", "dp", None),
    ("params-all-gather", "all_gather", "dp", None),
    ("embedding-grads-all-reduce", "all_reduce", "embedding", None),
    ("layernorm-grads-all-reduce", "all_reduce", "tp", None),
    # With a distributed optimizer the norm of the gradients is summed over all workers.
    ("optimizer-clip-main-grad", "all_reduce", "world", None),
)


@dataclass(frozen=True)
class OsdiTrace:
    path: Path
    relative: str
    format: str
    stages: int | None
    """pp_size and dp_size of the meta file; None: derived from the data."""
    replicas: int | None


def read_operations(source: OsdiTrace, sink: Sink) -> None:
    _stage_operations(source, sink)
    _warn_about_gaps(source, sink)
    _read_groups(sink)
    sink.add_query(
        "ranks",
        "SELECT DISTINCT rank, stage, ? AS format, ? AS path FROM osdi_operations ORDER BY rank",
        [source.format, source.relative],
    )
    sink.add_query("kernels", _KERNELS)
    sink.add_query("collectives", _COLLECTIVES)
    sink.add_query("events", _EVENTS)
    _read_steps(sink)
    sink.connection.execute("DROP TABLE osdi_operations")


def _stage_operations(source: OsdiTrace, sink: Sink) -> None:
    """All rows with ranks, nanoseconds on one clock, and the collective of each operation."""
    known = sink.connection.execute("SELECT name FROM parquet_schema(?)", [str(source.path)]).fetchall()
    names = {row[0] for row in known}
    rank = "rank::BIGINT" if "rank" in names else "stage::BIGINT * sizes.replicas + dp_rank"
    chunk = "mc::BIGINT" if "mc" in names else "0::BIGINT"
    columns = zip(*_COMMUNICATION, strict=True)
    path = str(source.path)
    sink.connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE osdi_staged AS
        WITH kinds AS (
            SELECT unnest(?::VARCHAR[]) AS optype, unnest(?::VARCHAR[]) AS op, unnest(?::VARCHAR[]) AS scope,
                   unnest(?::BIGINT[]) AS toward
        ), sizes AS (
            SELECT coalesce(?::BIGINT, max(stage) + 1) AS stages, coalesce(?::BIGINT, max(dp_rank) + 1) AS replicas
            FROM read_parquet(?)
        ), lengths AS (
            SELECT step, max(start_ts::DOUBLE + duration) AS length FROM read_parquet(?) GROUP BY step
        ), offsets AS (
            SELECT step, coalesce(sum(length) OVER (
                       ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS shift
            FROM lengths
        )
        SELECT step, {rank} AS rank, stage::BIGINT AS stage, dp_rank::BIGINT AS replica, optype, op, scope,
               seq_id::BIGINT AS seq, {chunk} AS chunk, max({chunk}) OVER () + 1 AS chunks, sizes.stages,
               (stage + toward + sizes.stages) % sizes.stages AS peer_stage,
               round((shift + start_ts::DOUBLE) * 1e9)::BIGINT AS start,
               round(duration::DOUBLE * 1e9)::BIGINT AS duration, list_contains(?, optype) AS computes,
               CASE scope WHEN 'pp' THEN 'pp-dp' || dp_rank WHEN 'dp' THEN 'dp-stage' || stage
                          WHEN 'embedding' THEN 'embedding-dp' || dp_rank WHEN 'world' THEN 'world'
                          WHEN 'tp' THEN 'tp-dp' || dp_rank || '-stage' || stage END AS "group"
        FROM read_parquet(?)
        JOIN offsets USING (step) CROSS JOIN sizes LEFT JOIN kinds USING (optype)
        """,
        [*map(list, columns), source.stages, source.replicas, path, path, list(_COMPUTE), path],
    )
    sink.connection.execute(_WITH_MESSAGES)
    sink.connection.execute("DROP TABLE osdi_staged")


_WITH_MESSAGES = f"""
    CREATE OR REPLACE TEMP TABLE osdi_operations AS
    WITH operations AS (
        SELECT *, row_number() OVER () AS operation, chunk * stages + stage AS gmc, chunks * stages AS model_chunks,
               if(chunks > 1 AND chunk >= 0, optype || ' #' || chunk, optype) AS name
        FROM osdi_staged
    ), {MATCHED}
    SELECT * FROM operations LEFT JOIN matched USING (operation)
"""


def _warn_about_gaps(source: OsdiTrace, sink: Sink) -> None:
    [(workers, unknown)] = sink.connection.execute(
        """
        SELECT count(DISTINCT rank),
               list_sort(list(DISTINCT optype) FILTER (op IS NULL AND NOT computes AND NOT list_contains(?, optype)))
        FROM osdi_operations
        """,
        [list(_HOST)],
    ).fetchall()
    expected = (source.stages or 0) * (source.replicas or 0)
    if workers < expected:
        sink.warn(message("workers", n=workers, all=expected), file=source.path)
    if unknown:
        sink.warn(message("unknown_types", names=", ".join(unknown)), file=source.path)


def _read_groups(sink: Sink) -> None:
    """Members are all workers that took part; their index is the stage or replica that distinguishes them."""
    rows = sink.connection.execute(
        """
        WITH members AS (
            SELECT DISTINCT "group", scope, rank, CASE scope WHEN 'pp' THEN stage WHEN 'dp' THEN replica END AS number
            FROM osdi_operations WHERE scope IS NOT NULL
        )
        SELECT "group", CASE scope WHEN 'embedding' THEN 'other' ELSE scope END,
               coalesce(number, row_number() OVER (PARTITION BY "group" ORDER BY rank) - 1), rank
        FROM members ORDER BY ALL
        """
    ).fetchall()
    if rows:
        groups, kinds, indices, ranks = map(list, zip(*rows, strict=True))
        sink.add("groups", {"group": groups, "kind": kinds, "index": indices, "rank": ranks})


_KERNELS = """
    SELECT rank, step, name, optype AS type, 'GPU' AS core, start, duration
    FROM osdi_operations
    WHERE computes
"""

_COLLECTIVES = """
    WITH keyed AS (
        -- As many forward as backward messages pass between two stages: direction and sender are part of the key.
        SELECT *, starts_with(optype, 'backward') AS backward,
               CASE op WHEN 'send' THEN stage WHEN 'receive' THEN peer_stage END AS sender
        FROM osdi_operations WHERE op IS NOT NULL
    ), workers AS (
        SELECT stage AS peer_stage, replica, any_value(rank) AS peer FROM osdi_operations GROUP BY stage, replica
    ), numbered AS (
        SELECT *, dense_rank() OVER (
                   PARTITION BY "group", CASE WHEN scope = 'pp' THEN 'pp' ELSE op END
                   ORDER BY step, coalesce(message, seq), if(scope = 'pp', 0, chunk), backward, sender
               ) - 1 AS sequence,
               scope <> 'pp' OR message IS NOT NULL AS sent
        FROM keyed
    )
    SELECT rank, step, if(sent, "group", NULL) AS "group", if(sent, op, 'other') AS op, name,
           if(sent, sequence, NULL) AS sequence, if(sent, peer, NULL) AS peer, start, duration
    FROM numbered LEFT JOIN workers USING (peer_stage, replica)
"""

_EVENTS = """
    SELECT rank, coalesce(scope, CASE WHEN computes THEN 'compute' ELSE 'host' END) AS track, optype AS name,
           CASE WHEN computes THEN 'compute' WHEN op IS NULL THEN 'host' ELSE 'communication' END AS category,
           start, duration
    FROM osdi_operations
"""


def _read_steps(sink: Sink) -> None:
    rows = sink.connection.execute("SELECT DISTINCT rank FROM osdi_operations ORDER BY rank").fetchall()
    for (rank,) in rows:
        _read_steps_of(rank, sink)


def _read_steps_of(rank: int, sink: Sink) -> None:
    steps = sink.connection.execute(
        """
        SELECT step, min(start) AS start, max(start + duration) AS end,
               min(start) FILTER (optype = 'forward-compute') AS forward,
               max(start + duration) FILTER (optype = 'backward-compute') AS backward
        FROM osdi_operations WHERE rank = ? GROUP BY step ORDER BY step
        """,
        [rank],
    ).fetchnumpy()
    begin, end = steps["start"].astype(np.int64), steps["end"].astype(np.int64)
    computing = _covered(rank, "computes", sink).covered(begin, end)
    communication = _covered(rank, "op IS NOT NULL", sink).covered(begin, end)
    busy = _covered(rank, "(computes OR op IS NOT NULL)", sink).covered(begin, end)
    overlapped = computing + communication - busy
    sink.add(
        "steps",
        {
            "rank": rank,
            "step": steps["step"],
            "start": begin,
            "end": end,
            "duration": end - begin,
            "forward_backward": steps["backward"] - steps["forward"],
            "tail": end - steps["backward"],
            "computing": computing,
            "communication": communication,
            "overlapped": overlapped,
            "exposed": communication - overlapped,
            "free": end - begin - busy,
            "bubble": _covered(rank, "op = 'receive'", sink).covered(begin, end),
        },
    )


def _covered(rank: int, condition: str, sink: Sink) -> IntervalUnion:
    rows = sink.connection.execute(
        f"SELECT start, start + duration AS end FROM osdi_operations WHERE rank = ? AND {condition}", [rank]
    ).fetchnumpy()
    starts: Times = rows["start"].astype(np.int64)
    return merge_intervals(starts, rows["end"].astype(np.int64))
