"""A report's tables as the events that torch writes, so that both are read by the same queries.

    CUPTI_ACTIVITY_KIND_KERNEL, _GRAPH_TRACE, _MEMCPY, _MEMSET   kernel, gpu_memcpy, gpu_memset
    CUPTI_ACTIVITY_KIND_RUNTIME                                  cuda_runtime
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION                          cuda_sync
    NVTX_EVENTS (ranges)                                         nvtx; cpu_op where torch's emit_nvtx wrote them

Rows are copied as numbers, and DuckDB joins their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.formats.ascend_db.database import Database
from paceline.formats.base import Sink
from paceline.formats.kineto.tables import create_trace_table
from paceline.formats.nsys.processes import PROCESS_BITS

UNKNOWN = -1
_CHUNK = 200_000
_RANGES = "(59, 60)"
"""Event types of NVTX: push/pop and start/end ranges."""
_DOMAIN = 75


@dataclass(frozen=True)
class _Source:
    """A table of the report: which columns become which of the staged ones, as SQL."""

    table: str
    category: str
    name: str
    thread: str
    correlation: str = "correlationId"
    stream: str | None = None
    device: str | None = None
    bytes: str | None = None
    process: str = "globalPid"
    where: str = ""


_SOURCES = (
    _Source("CUPTI_ACTIVITY_KIND_KERNEL", "kernel", "demangledName", "streamId", stream="streamId", device="deviceId"),
    _Source("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "kernel", "graphId", "streamId", stream="streamId", device="deviceId"),
    _Source(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "gpu_memcpy",
        "copyKind",
        "streamId",
        stream="streamId",
        device="deviceId",
        bytes="bytes",
    ),
    _Source(
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "gpu_memset",
        "value",
        "streamId",
        stream="streamId",
        device="deviceId",
        bytes="bytes",
    ),
    _Source("CUPTI_ACTIVITY_KIND_RUNTIME", "cuda_runtime", "nameId", "globalTid", process="globalTid"),
    _Source(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "cuda_sync",
        "syncType",
        "streamId",
        stream="streamId",
        device="deviceId",
    ),
)

_STAGE = """
    INSERT INTO trace BY NAME
    SELECT 'X' AS ph, {name} AS name, {track}, '{category}' AS cat,
           start AS ts, stop - start AS dur, nullif(correlation, -1) AS correlation,
           nullif(stream, -1) AS stream, nullif(device, -1) AS device, nullif(bytes, -1)::VARCHAR AS bytes
    FROM report_rows LEFT JOIN report_names ON report_rows.name = report_names.id
    WHERE stop >= start
"""
_ON_HOST = "process::VARCHAR AS pid, thread::VARCHAR AS tid"
_ON_DEVICE = "'GPU ' || device AS pid, 'stream ' || thread AS tid"
_NAMES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "coalesce(report_names.value, '?')",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "'CUDA graph ' || report_rows.name",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "'Memcpy' || coalesce(' ' || report_names.value, '')",
    "CUPTI_ACTIVITY_KIND_MEMSET": "'Memset'",
    # cudaLaunchKernel_v7000 → cudaLaunchKernel
    "CUPTI_ACTIVITY_KIND_RUNTIME": r"regexp_replace(coalesce(report_names.value, '?'), '(_v\d+)+$', '')",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "coalesce(report_names.value, 'Synchronization')",
}
_ENUMS = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": "ENUM_CUDA_MEMCPY_OPER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "ENUM_CUPTI_SYNC_TYPE",
}
_RANGE_ROWS = r"""
    INSERT INTO trace BY NAME
    WITH named AS (
        SELECT *, regexp_extract(text, '^([a-z_0-9]+::[A-Za-z_0-9.]+)(?:, |$)', 1) AS operator FROM report_ranges
    )
    SELECT 'X' AS ph, pid, tid, ts, dur, if(operator <> '', operator, if(of_nccl, 'nccl:', '') || text) AS name,
           CASE WHEN operator <> '' THEN 'cpu_op' WHEN of_nccl THEN 'user_annotation' ELSE 'nvtx' END AS cat,
           -- As emit_nvtx(record_shapes=True) writes them: aten::mm, seq = 5, sizes = [[8, 4], [4, 2]], input_op_ids = …
           nullif(regexp_extract(text, 'sizes = (\[.*?\])(?:, input_op_ids|$)', 1), '') AS dims,
           nullif(regexp_extract(payload, 'Message size \[bytes\]"?\s*:\s*"?(\d+)', 1), '') AS elements_in,
           if(elements_in IS NULL, NULL, 'byte') AS dtype
    FROM named
"""
"""NCCL's own ranges tell the payload: "Message size [bytes]"."""


def stage_report(database: Database, process: int | None, sink: Sink) -> None:
    """Create the table `trace` of one process."""
    create_trace_table(sink)
    for source in _SOURCES:
        if database.has(source.table, "start", "end", source.name, source.thread):
            track = _ON_DEVICE if source.device else _ON_HOST
            _stage_names(database, source, sink)
            for columns in _numbers(database, source, process):
                sink.connection.register("report_rows", columns)
                sink.connection.execute(_STAGE.format(name=_NAMES[source.table], track=track, category=source.category))
                sink.connection.unregister("report_rows")
            sink.connection.execute("DROP TABLE report_names")
    _stage_ranges(database, process, sink)
    _stage_track_names(database, sink)


def _numbers(database: Database, source: _Source, process: int | None) -> Iterator[dict[str, NDArray[np.int64]]]:
    """Rows that began, ended and have a name, of one process."""
    wanted = {
        "start": "start",
        "stop": "end",
        "process": source.process,
        "thread": source.thread,
        "name": source.name,
        "correlation": source.correlation,
        "stream": source.stream,
        "device": source.device,
        "bytes": source.bytes,
    }
    of_one = process is not None and database.has(source.table, source.process)
    for columns in database.columns_of(source.table, [f"{source.table}.{column}" for column in wanted.values()]):
        found = dict(zip(wanted, columns, strict=True))
        chosen = ~np.logical_or.reduce([np.ma.getmaskarray(found[name]) for name in ("start", "stop", "name")])
        rows = {name: np.ma.filled(column, UNKNOWN)[chosen] for name, column in found.items()}
        rows["process"] = np.where(rows["process"] == UNKNOWN, 0, rows["process"] >> PROCESS_BITS << PROCESS_BITS)
        if of_one:
            of_process = rows["process"] == process
            rows = {name: column[of_process] for name, column in rows.items()}
        yield rows


def _process(database: Database, table: str, column: str) -> str:
    """SQL of the process of a row: the upper bits of a thread's global id."""
    return f"(({column} >> {PROCESS_BITS}) << {PROCESS_BITS})" if database.has(table, column) else "NULL"


def _stage_names(database: Database, source: _Source, sink: Sink) -> None:
    """Create `report_names`: the texts to which the source's name column refers."""
    enum = _ENUMS.get(source.table)
    if enum:
        names = database.rows(f"SELECT id, coalesce(label, name) FROM {enum}") if database.has(enum, "label") else []
    elif source.name in ("demangledName", "nameId"):
        names = database.rows(
            f"SELECT id, value FROM StringIds WHERE id IN (SELECT DISTINCT {source.name} FROM {source.table})"
        )
    else:
        names = []
    sink.connection.execute(
        "CREATE OR REPLACE TEMP TABLE report_names AS SELECT unnest(?::BIGINT[]) AS id, unnest(?::VARCHAR[]) AS value",
        [[number for number, _ in names], [str(text) for _, text in names]],
    )


def _stage_ranges(database: Database, process: int | None, sink: Sink) -> None:
    table = "NVTX_EVENTS"
    if not database.has(table, "start", "end", "eventType", "text", "globalTid"):
        return
    # The text is in the row, or in the table of strings if it was registered.
    registered = "LEFT JOIN StringIds ON StringIds.id = NVTX_EVENTS.textId" if database.has(table, "textId") else ""
    text = "coalesce(NVTX_EVENTS.text, StringIds.value)" if registered else "NVTX_EVENTS.text"
    of_nccl = f"domainId IN ({', '.join(map(str, _domains_of_nccl(database, text, registered))) or 'NULL'})"
    payload = "jsonText" if database.has(table, "jsonText") else "NULL"
    one = f"AND {_process(database, table, 'globalTid')} = ?" if process is not None else ""
    cursor = database.connection.execute(
        f"""
        SELECT {text}, start, "end", {_process(database, table, "globalTid")}, globalTid,
               {of_nccl if database.has(table, "domainId") else "0"}, {payload}
        FROM {table} {registered}
        WHERE eventType IN {_RANGES} AND {text} IS NOT NULL AND typeof(start) = 'integer'
          AND typeof("end") = 'integer' AND "end" >= start {one}
        """,
        [process] if process is not None else [],
    )
    while rows := cursor.fetchmany(_CHUNK):
        names, starts, ends, processes, threads, of_library, payloads = zip(*rows, strict=True)
        sink.connection.execute(
            """
            CREATE OR REPLACE TEMP TABLE report_ranges AS
            SELECT unnest(?::VARCHAR[]) AS text, unnest(?::BIGINT[]) AS ts, unnest(?::BIGINT[]) AS dur,
                   unnest(?::VARCHAR[]) AS pid, unnest(?::VARCHAR[]) AS tid, unnest(?::BOOLEAN[]) AS of_nccl,
                   unnest(?::VARCHAR[]) AS payload
            """,
            [
                [str(name) for name in names],
                list(starts),
                [end - start for start, end in zip(starts, ends, strict=True)],
                [str(each) for each in processes],
                [str(each) for each in threads],
                [bool(each) for each in of_library],
                [None if each is None else str(each) for each in payloads],
            ],
        )
        sink.connection.execute(_RANGE_ROWS)
        sink.connection.execute("DROP TABLE report_ranges")


def _domains_of_nccl(database: Database, text: str, registered: str) -> list[int]:
    if not database.has("NVTX_EVENTS", "domainId"):
        return []
    rows = database.rows(
        f"SELECT domainId FROM NVTX_EVENTS {registered} WHERE eventType = {_DOMAIN} AND {text} IN ('NCCL', 'RCCL')"
    )
    return [int(number) for (number,) in rows if isinstance(number, int)]


def _stage_track_names(database: Database, sink: Sink) -> None:
    """Names of processes and threads, as torch's metadata events."""
    names: list[tuple[str, str, str | None, str]] = []
    if database.has("PROCESSES", "globalPid", "name"):
        rows = database.rows("SELECT globalPid, name FROM PROCESSES WHERE name IS NOT NULL")
        names += [("process_name", str(process), None, str(name)) for process, name in rows]
    if database.has("ThreadNames", "globalTid", "nameId"):
        rows = database.rows(
            f"""
            SELECT {_process(database, "ThreadNames", "globalTid")}, globalTid, StringIds.value
            FROM ThreadNames JOIN StringIds ON StringIds.id = nameId
            """
        )
        names += [("thread_name", str(process), str(thread), str(name)) for process, thread, name in rows]
    sink.connection.execute(
        """
        INSERT INTO trace BY NAME
        SELECT 'M' AS ph, unnest(?::VARCHAR[]) AS name, unnest(?::VARCHAR[]) AS pid, unnest(?::VARCHAR[]) AS tid,
               unnest(?::VARCHAR[]) AS label
        """,
        [[row[at] for row in names] for at in range(4)],
    )
