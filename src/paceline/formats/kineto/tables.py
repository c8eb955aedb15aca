"""Events of a torch trace as tables: loaded once into DuckDB, then one query per table.

Timestamps are microseconds, in newer traces relative to `baseTimeNanoseconds`. Device work has the categories kernel,
gpu_memcpy and gpu_memset; kernels of a communication library are recognised by name or by their arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from paceline.core.message import message
from paceline.formats.base import CUT_OFF, Sink
from paceline.formats.chrome_trace.trace_events import load_counters, load_trace
from paceline.formats.kineto.calls import stage_calls
from paceline.formats.kineto.categories import DAY, DEVICE_CATEGORIES, IS_RUNTIME, LOADING, MINUTE
from paceline.formats.kineto.collectives import CALL_COLUMNS, read_collectives, stage_communication
from paceline.formats.kineto.communication_kernels import CommunicationKernels
from paceline.formats.kineto.groups import add_groups, groups_in_events
from paceline.formats.kineto.idle_calls import read_idle_calls
from paceline.formats.kineto.metadata import TraceHead
from paceline.formats.kineto.steps import busy_times, read_steps, stage_steps

TABLES = frozenset(
    {
        "ranks",
        "groups",
        "steps",
        "kernels",
        "collectives",
        "host_calls",
        "idle_calls",
        "counters",
        "memory",
        "ranks_memory",
    }
)

_ARGS = {
    "stream": "stream",
    "device": "device",
    "correlation": "correlation",
    "label": "name",
    "labels": "labels",
    "collective": "Collective name",
    "elements_in": "In msg nelems",
    "elements_out": "Out msg nelems",
    "dtype": "dtype",
    "pg_name": "Process Group Name",
    "pg_desc": "Process Group Description",
    "pg_ranks": "Process Group Ranks",
    "seq": "Seq",
    "seq_num": "seq_num",
    "src": "Src Rank",
    "dst": "Dst Rank",
    "dims": "Input Dims",
    "values": "Concrete Inputs",
    "types": "Input type",
    "bytes": "Bytes",
    "allocated": "Total Allocated",
    "reserved": "Total Reserved",
    "device_type": "Device Type",
    "device_id": "Device Id",
}
_INTEGERS = frozenset({"correlation", "stream", "device"})
_BELIEVABLE_TIMES = f"""
    WITH middle AS (
        SELECT approx_quantile(ts, 0.5)::BIGINT AS ts FROM trace WHERE ph = 'X' AND dur >= 0
    ), host AS (
        SELECT min(trace.ts) AS low, max(trace.ts + dur) AS high FROM trace, middle
        WHERE ph = 'X' AND dur BETWEEN 0 AND {DAY} AND cat NOT IN ({DEVICE_CATEGORIES}, 'Trace')
          AND abs(trace.ts - middle.ts) <= {DAY}
    )
    SELECT greatest(middle.ts - {DAY}, low - greatest(high - low, {MINUTE})),
           least(middle.ts + {DAY}, high + greatest(high - low, {MINUTE}))
    FROM middle, host
"""
"""No trace lasts a day, and a device is not as far behind its host as the host was recorded."""
_WRONG_TIMES = """
    SELECT count(*), max(greatest(getvariable('kineto_earliest') - ts, ts - getvariable('kineto_latest'))) / 3.6e12
    FROM trace
    WHERE ph = 'X' AND dur >= 0 AND ts NOT BETWEEN getvariable('kineto_earliest') AND getvariable('kineto_latest')
"""

_MOST_NAMED = 8
_STAGED = (
    "kineto_device",
    "kineto_calls",
    "kineto_around",
    "kineto_communication",
    "kineto_steps",
    "kineto_work",
    "trace",
)


def read_trace(path: Path, head: TraceHead, kernels: CommunicationKernels, sink: Sink) -> None:
    if load_trace(sink.connection, path, args=_ARGS, integers=_INTEGERS, whole=False):
        sink.warn(CUT_OFF, file=path, kind="cut")
    read_staged_trace(head, kernels, sink, partial(_read_counters, path))


def create_trace_table(sink: Sink) -> None:
    """Create the empty table `trace`, as load_trace does, for recordings of other tools."""
    columns = ", ".join(f"{name} {'BIGINT' if name in _INTEGERS else 'VARCHAR'}" for name in _ARGS)
    sink.connection.execute(
        "CREATE OR REPLACE TEMP TABLE trace (ph VARCHAR, name VARCHAR, pid VARCHAR, tid VARCHAR, cat VARCHAR, "
        f"id VARCHAR, ts BIGINT, dur BIGINT, {columns})"
    )


def read_staged_trace(
    head: TraceHead,
    kernels: CommunicationKernels,
    sink: Sink,
    read_counters: Callable[[int, Sink], None] = lambda shift, sink: None,
) -> None:
    """All tables of what is in the table `trace`, with the categories and arguments that torch writes."""
    shift = _stage_spans(head, sink)
    _warn_of_wrong_times(sink)
    _stage_device(kernels, sink)
    stage_calls(sink)
    stage_communication(sink)
    steps = stage_steps(sink)
    device = _read_device(head, sink)
    if not head.groups:
        add_groups(groups_in_events(sink), head, sink)
    read_steps(steps, sink, has_devices=bool(head.devices))
    read_collectives(head, sink)
    sink.add_query("kernels", _KERNELS)
    sink.add_query("host_calls", _HOST_CALLS)
    read_idle_calls(steps, *busy_times(sink), sink)
    sink.add_query("memory", _MEMORY, [shift])
    sink.add_query("ranks_memory", _RANKS_MEMORY, [_capacity(head, device)])
    read_counters(shift, sink)
    sink.connection.execute("DROP VIEW kineto_spans")
    for table in _STAGED:
        sink.connection.execute(f"DROP TABLE {table}")


def read_events(path: Path, head: TraceHead, sink: Sink) -> None:
    named = {"label": "name", "labels": "labels", "correlation": "correlation"}
    load_trace(
        sink.connection,
        path,
        args=named,
        integers=_INTEGERS,
        phases="XBEMsf",
        whole=False,
        all_args=sink.wants("events"),
    )
    read_staged_events(head, sink)


def read_staged_events(head: TraceHead, sink: Sink) -> None:
    """The timeline of what is in the table `trace`, with the arrows of recorded flows, else from launches to their work."""
    shift = _stage_spans(head, sink)
    sink.connection.execute(_TRACKS)
    columns = {row[0] for row in sink.connection.execute("DESCRIBE trace").fetchall()}
    sink.add_query("events", _EVENTS.format(args="args" if "args" in columns else "NULL"))
    if not sink.add_query("flows", _FLOWS, [shift, shift]):
        sink.add_query("flows", _LAUNCHES)
    sink.connection.execute("DROP TABLE kineto_tracks")
    sink.connection.execute("DROP VIEW kineto_spans")
    sink.connection.execute("DROP TABLE trace")


def _stage_spans(head: TraceHead, sink: Sink) -> int:
    """Create the view `kineto_spans` of all complete events on the absolute clock; returns what is added to timestamps.

    Events far away from all others have wrong times, and are left out (see _WRONG_TIMES).
    """
    [(earliest, latest)] = sink.connection.execute(
        "SELECT coalesce(min(ts), 0), coalesce(max(ts), 0) FROM trace WHERE ph = 'X'"
    ).fetchall()
    shift = head.base if latest < head.base else 0
    sink.connection.execute("SET VARIABLE kineto_shift = ?", [shift])
    _leave_out_wrong_times(earliest, latest, sink)
    sink.connection.execute(
        """
        CREATE OR REPLACE TEMP VIEW kineto_spans AS
        SELECT rowid AS row, * EXCLUDE (ts, dur), ts + getvariable('kineto_shift') AS start, dur AS duration
        FROM trace
        WHERE ph = 'X' AND ts IS NOT NULL AND dur >= 0
          AND ts BETWEEN getvariable('kineto_earliest') AND getvariable('kineto_latest')
        """
    )
    return shift


def _leave_out_wrong_times(earliest: int, latest: int, sink: Sink) -> None:
    """Set the first and last time that an event of this trace may have."""
    if latest - earliest > MINUTE:
        [(earliest, latest)] = sink.connection.execute(_BELIEVABLE_TIMES).fetchall()
    sink.connection.execute("SET VARIABLE kineto_earliest = ?", [earliest])
    sink.connection.execute("SET VARIABLE kineto_latest = ?", [latest])


def _warn_of_wrong_times(sink: Sink) -> None:
    [(count, hours)] = sink.connection.execute(_WRONG_TIMES).fetchall()
    if count:
        sink.warn(message("far_events", n=count, hours=hours))


def _stage_device(kernels: CommunicationKernels, sink: Sink) -> None:
    """Create `kineto_device`: everything that ran on the device, numbered, with its launch."""
    connection = sink.connection
    rows = connection.execute("SELECT DISTINCT name FROM kineto_spans WHERE cat IN ('kernel', 'Kernel')").fetchall()
    ops = {name: op for (name,) in rows if name is not None and (op := kernels.op(name))}
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE kineto_device AS
        WITH launches AS (
            -- Columns and not a row: a struct would take twice the time.
            SELECT correlation, min(start) AS launched, arg_min(hash(pid, tid) >> 1, start)::BIGINT AS thread
            FROM kineto_spans WHERE {IS_RUNTIME} AND correlation <> 0 GROUP BY ALL
        ), device AS (
            FROM kineto_spans WHERE cat IN ({DEVICE_CATEGORIES})
        ), named AS (
            SELECT unnest(?::VARCHAR[]) AS name, unnest(?::VARCHAR[]) AS kernel_op
        )
        SELECT row_number() OVER () - 1 AS work, name, start, duration, launched, thread, stream, device,
               CASE WHEN cat ILIKE 'kernel' THEN 'kernel' WHEN cat ILIKE '%memcpy' THEN 'Memcpy' ELSE 'Memset' END
                   AS kind,
               cat IN ('kernel', 'Kernel') AND (kernel_op IS NOT NULL OR collective IS NOT NULL) AS communicates,
               kernel_op, {CALL_COLUMNS}
        FROM device LEFT JOIN launches USING (correlation) LEFT JOIN named USING (name)
        """,
        [list(ops), list(ops.values())],
    )


def _read_device(head: TraceHead, sink: Sink) -> int | None:
    """Number and model of the card; of several the one with most work."""
    # fetchall, here and elsewhere: DuckDB refuses new statements while a result of fetchone is open.
    rows = sink.connection.execute(
        "SELECT device, count(*) FROM kineto_device WHERE device >= 0 GROUP BY 1 ORDER BY 2 DESC, 1"
    ).fetchall()
    if not rows:
        return None
    device = int(rows[0][0])
    card = next((each.name for each in head.devices if each.id == device and each.name), None)
    sink.add("ranks", {"device": device, "card": card} if card else {"device": device})
    if len(rows) > 1:
        others = ", ".join(str(number) for number in sorted(int(number) for number, _ in rows)[:_MOST_NAMED])
        sink.warn(message("two_devices", n=len(rows), others=others))
    return device


def _capacity(head: TraceHead, device: int | None) -> int | None:
    """Memory of the card as the driver reported it; one kind of card is enough to know it."""
    known = {each.totalGlobalMem for each in head.devices if device in (None, each.id) and each.totalGlobalMem > 0}
    return known.pop() if len(known) == 1 else None


_KERNELS = """
    WITH functions AS (
        -- "void at::native::sum<float>(float*)" → "sum": the common name of a kernel's template instances.
        SELECT DISTINCT name, regexp_replace(
                   regexp_extract(replace(name, '(anonymous namespace)::', ''), '^(?:void )?([^<(]*)', 1), '^.*::', ''
               ) AS function
        FROM kineto_device WHERE kind = 'kernel'
    )
    SELECT step, work.name, CASE WHEN kind = 'kernel' THEN function ELSE kind END AS type,
           CASE WHEN communicates THEN 'COMMUNICATION' ELSE 'GPU' END AS core, work.stream, work.start, work.duration,
           launched AS launch, caller.name AS operator,
           coalesce(nullif(replace(module.name, 'nn.Module: ', ''), ''), range.name) AS module, frame.name AS code,
           caller.shapes AS input_shapes, caller.shape_types AS input_types
    FROM kineto_device AS work
    LEFT JOIN functions ON functions.name = work.name
    LEFT JOIN kineto_work USING (work)
    LEFT JOIN kineto_calls AS calls USING (work)
    LEFT JOIN kineto_around AS caller ON calls.operator = caller.row
    LEFT JOIN kineto_around AS module ON calls.module = module.row
    LEFT JOIN kineto_around AS range ON calls.range = range.row
    LEFT JOIN kineto_around AS frame ON calls.frame = frame.row
"""

_HOST_CALLS = f"""
    SELECT CASE WHEN {IS_RUNTIME} THEN 'runtime' WHEN starts_with(name, '{LOADING}') THEN 'input'
                ELSE 'framework' END AS layer, name,
           count(*) AS count, sum(duration)::BIGINT AS time, min(duration) AS min, max(duration) AS max
    FROM kineto_spans
    WHERE cat IN ('cpu_op', 'Operator') OR {IS_RUNTIME}
       OR (starts_with(name, '{LOADING}') AND cat IS DISTINCT FROM 'gpu_user_annotation')
    GROUP BY ALL
"""

_TRACKS = """
    CREATE OR REPLACE TEMP TABLE kineto_tracks AS
    WITH processes AS (
        SELECT pid, any_value(label) FILTER (name = 'process_name') AS process,
               any_value(labels) FILTER (name = 'process_labels' AND labels <> 'CPU') AS device
        FROM trace WHERE ph = 'M' GROUP BY pid
    ), threads AS (
        SELECT pid, tid, trim(any_value(label)) AS thread
        FROM trace WHERE ph = 'M' AND name = 'thread_name' GROUP BY pid, tid
    )
    SELECT pid, tid, coalesce(device, process, pid, '') || '/' || coalesce(thread, tid, '') AS track
    FROM (SELECT DISTINCT pid, tid FROM trace)
    LEFT JOIN processes USING (pid)
    LEFT JOIN threads USING (pid, tid)
"""
"""Process and thread → the track that people see."""

_EVENTS = """
    SELECT track, name, cat AS category, start, duration, {args} AS args
    FROM kineto_spans LEFT JOIN kineto_tracks USING (pid, tid)
"""

_FLOWS = """
    WITH ends AS (
        SELECT ph, cat, name, id, ts, track FROM trace JOIN kineto_tracks USING (pid, tid)
        WHERE ph IN ('s', 'f') AND ts IS NOT NULL AND id IS NOT NULL
    )
    SELECT source.cat AS category, source.name, source.track AS start_track, source.ts + ? AS start,
           target.track AS end_track, target.ts + ? AS "end"
    FROM ends AS source JOIN ends AS target USING (cat, name, id)
    WHERE source.ph = 's' AND target.ph = 'f'
"""
"""Calls without device work have an end and no start: they have no arrow."""

_LAUNCHES = f"""
    WITH launches AS (
        SELECT correlation, arg_min(kineto_tracks.track, start) AS track, min(start) AS start
        FROM kineto_spans JOIN kineto_tracks USING (pid, tid) WHERE {IS_RUNTIME} AND correlation <> 0 GROUP BY ALL
    )
    SELECT 'ac2g' AS category, 'ac2g' AS name, launches.track AS start_track, launches.start,
           kineto_tracks.track AS end_track, work.start AS "end"
    FROM kineto_spans AS work JOIN launches USING (correlation) JOIN kineto_tracks USING (pid, tid)
    WHERE cat IN ({DEVICE_CATEGORIES})
"""

_MEMORY = """
    WITH samples AS (
        SELECT ts + ? AS time, TRY_CAST(device_type AS BIGINT) AS kind_of_device,
               TRY_CAST(device_id AS BIGINT) AS device, TRY_CAST(bytes AS BIGINT) AS size,
               TRY_CAST(allocated AS BIGINT) AS allocated, TRY_CAST(reserved AS BIGINT) AS reserved
        FROM trace
        WHERE ph = 'i' AND name = '[memory]'
    )
    -- Device type 0 is the host: left out if a device was recorded, because the sums are per allocator.
    SELECT 'sample' AS kind, CASE WHEN kind_of_device = 0 THEN 'CPU' ELSE 'GPU ' || coalesce(device, 0) END AS name,
           time, size, allocated, reserved
    FROM samples
    WHERE kind_of_device <> 0 OR NOT EXISTS (FROM samples WHERE kind_of_device <> 0)
"""

_RANKS_MEMORY = """
    -- Allocated, not reserved: what the allocator keeps back costs nothing until someone needs it.
    SELECT max(TRY_CAST(allocated AS BIGINT)) AS peak, ?::BIGINT AS capacity, 'measured' AS basis
    FROM trace
    WHERE ph = 'i' AND name = '[memory]' AND TRY_CAST(device_type AS BIGINT) <> 0
    HAVING peak IS NOT NULL
"""


def _read_counters(path: Path, shift: int, sink: Sink) -> None:
    [(samples,)] = sink.connection.execute("SELECT count(*) FROM trace WHERE ph = 'C'").fetchall()
    if samples and sink.wants("counters"):
        load_counters(sink.connection, path, table="kineto_counters")
        sink.add_query("counters", "SELECT name, series, ts + ? AS time, value FROM kineto_counters", [shift])
        sink.connection.execute("DROP TABLE kineto_counters")
