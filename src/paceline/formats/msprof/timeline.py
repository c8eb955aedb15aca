"""Chrome traces of msprof for one device, loaded into DuckDB: steps, kernels, collectives with their tasks, events.

Older exports have one file per iteration (msprof_{device}_{model}_{iteration}.json), newer ones a single file. Times
are µs; task names have blanks or underscores, depending on the version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import Sink
from paceline.formats.chrome_trace.trace_events import load_trace
from paceline.formats.csv_files import csv_rows
from paceline.formats.hccl.task_sums import add_from_tasks, create_staging
from paceline.formats.units import integer, ns_from_us

_ARGS = {
    "label": "name",
    "task_type": "Task Type",
    "src": "src rank",
    "dst": "dst rank",
    "transport": "transport type",
    "link": "link type",
    "bytes": "size(Byte)",
    "bytes_before_2023": "size",
}
_STEP_ARGS = {
    "iteration": "Iteration ID",
    "forward": "FP Start",
    "backward": "BP End",
    "finish": "Iteration End",
    "bound": "Data_aug Bound(us)",
}


@dataclass(frozen=True)
class TraceFile:
    """One trace file; iteration None: the file holds the whole recording."""

    path: Path
    iteration: int | None = None


def read_steps(step_traces: tuple[TraceFile, ...], timelines: tuple[TraceFile, ...], sink: Sink) -> None:
    """Rows of `steps`: marks of the step trace, split by the Overlap Analysis lanes."""
    stage_marks(step_traces, sink)
    _stage_timeline(timelines, sink)
    if not _count(sink, "step_marks") and _count(sink, "timeline"):
        if timelines:
            sink.warn(message("one_step"), file=timelines[0].path)
        sink.connection.execute(_ONE_STEP)
    sink.add_query("steps", _STEPS)
    _drop(sink, "step_marks", "timeline")


def read_kernels(step_traces: tuple[TraceFile, ...], timelines: tuple[TraceFile, ...], sink: Sink) -> None:
    """Rows of `kernels`: computing tasks of the device's streams, and collectives with core COMMUNICATION."""
    stage_marks(step_traces, sink)
    _stage_timeline(timelines, sink)
    sink.add_query("kernels", _KERNELS)
    _drop(sink, "step_marks", "timeline")


def read_communication(
    step_traces: tuple[TraceFile, ...], traces: tuple[TraceFile, ...], tables: tuple[str, ...], sink: Sink
) -> None:
    """Rows of the given tables (of `collectives`, `transfers` and `packets`).

    A task belongs to the collective that was running on the planes of its group.
    """
    stage_marks(step_traces, sink)
    _stage_timeline(traces, sink)
    create_staging(sink.connection)
    sink.connection.execute(_OPERATORS)
    sink.connection.execute(
        'INSERT INTO hccl_ops SELECT op, step, "group", name, start, duration FROM hccl_collectives'
    )
    sink.connection.execute(_TASKS)
    _drop(sink, "step_marks", "timeline", "hccl_collectives")
    add_from_tasks(sink, tables)


def read_events(timelines: tuple[TraceFile, ...], sink: Sink) -> None:
    """Rows of `events`, one track per process and thread."""
    _stage_timeline(timelines, sink)
    sink.add_query("events", "SELECT DISTINCT track, name, category, start, duration FROM timeline")
    _drop(sink, "timeline")


# -- staging ---------------------------------------------------------------------------------------------------------


def stage_marks(step_traces: tuple[TraceFile, ...], sink: Sink) -> None:
    """Create step_marks: step, start, forward, backward, finish, in ns.

    Each file of an older export has all iterations: a file is read only if its iteration is still missing. A step starts
    where the one before ended: forward start - Data_aug Bound.
    """
    connection = sink.connection
    connection.execute("""
        CREATE OR REPLACE TEMP TABLE step_marks (
            step BIGINT, start BIGINT, forward BIGINT, backward BIGINT, finish BIGINT)
    """)
    seen: set[int] = set()
    for trace in sorted(step_traces, key=lambda one: (-one.path.stat().st_size, one.iteration or 0)):
        if trace.iteration is not None and trace.iteration in seen:
            continue
        if trace.path.suffix == ".csv":
            _stage_csv_marks(trace.path, sink)
        else:
            load_trace(connection, trace.path, table="step_trace", args=_STEP_ARGS)
            connection.execute(_MARKS)
            _drop(sink, "step_trace")
        seen = {int(step) for (step,) in connection.execute("SELECT step FROM step_marks").fetchall()}


def _stage_csv_marks(path: Path, sink: Sink) -> None:
    """The same marks from step_trace_*.csv; missing points are N/A."""
    known = {int(step) for (step,) in sink.connection.execute("SELECT step FROM step_marks").fetchall()}
    for row in csv_rows(path, ("Iteration ID", "Iteration End(us)", "Iteration Time(us)")):
        step, finish = integer(row["Iteration ID"]), ns_from_us(row["Iteration End(us)"])
        time = ns_from_us(row["Iteration Time(us)"])
        if step is None or finish is None or time is None or step in known:
            continue
        forward, backward = ns_from_us(row.get("FP Start(us)")), ns_from_us(row.get("BP End(us)"))
        bound = ns_from_us(row.get("Data Aug Bound(us)")) or 0
        start = min(finish - time, finish - time if forward is None else forward - bound)
        sink.connection.execute(
            "INSERT INTO step_marks VALUES (?, ?, ?, ?, ?)", [step, start, forward, backward, finish]
        )


def _stage_timeline(traces: Iterable[TraceFile], sink: Sink) -> None:
    """Create `timeline`: spans with the names of their process and thread."""
    connection = sink.connection
    connection.execute("""
        CREATE OR REPLACE TEMP TABLE timeline (
            iteration BIGINT, process VARCHAR, thread VARCHAR, tid BIGINT, track VARCHAR, name VARCHAR,
            category VARCHAR, start BIGINT, duration BIGINT, task_type VARCHAR, src BIGINT, dst BIGINT,
            transport VARCHAR, link VARCHAR, size BIGINT)
    """)
    for trace in traces:
        if trace.iteration is not None and not _is_complete(trace.path):
            # Checked before DuckDB reads it: its error would end the transaction, and all iterations would be lost.
            sink.warn(message("cut_iteration"), file=trace.path)
            continue
        try:
            load_trace(connection, trace.path, table="trace", args=_ARGS)
        except duckdb.Error as error:
            reason = str(error).splitlines()[0][:160]
            raise FormatError(message("unreadable_trace", error=reason), file=trace.path) from error
        connection.execute(_TIMELINE, {"iteration": trace.iteration})
        _drop(sink, "trace")


def _is_complete(path: Path) -> bool:
    """Whether the file ends like a JSON file."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        return file.read().rstrip().endswith((b"]", b"}"))


def _count(sink: Sink, table: str) -> int:
    return int(sink.connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])


def _drop(sink: Sink, *tables: str) -> None:
    for table in tables:
        sink.connection.execute(f"DROP TABLE IF EXISTS {table}")


_MARKS = """
    INSERT INTO step_marks
    WITH
    iterations AS (
        SELECT TRY_CAST(iteration AS BIGINT) AS step, ts, ts + dur AS finish,
               (TRY_CAST(forward AS DECIMAL(30, 3)) * 1000)::BIGINT AS forward,
               (TRY_CAST(backward AS DECIMAL(30, 3)) * 1000)::BIGINT AS backward
        FROM step_trace WHERE cat = 'Iteration Time' AND ph = 'X'
    ),
    bounds AS (
        SELECT TRY_CAST(regexp_extract(name, '(\\d+)$', 1) AS BIGINT) AS step,
               max((TRY_CAST(bound AS DECIMAL(30, 3)) * 1000)::BIGINT) AS bound
        FROM step_trace WHERE cat = 'Data_aug Bound' GROUP BY step
    )
    SELECT DISTINCT step, least(ts, forward - coalesce(bound, 0)), forward, backward, finish
    FROM iterations LEFT JOIN bounds USING (step)
    WHERE step IS NOT NULL AND ts IS NOT NULL AND step NOT IN (SELECT step FROM step_marks)
"""

_ONE_STEP = """
    INSERT INTO step_marks
    SELECT NULL, min(start), NULL, NULL, max(start + duration) FROM timeline WHERE process = 'Overlap Analysis'
    HAVING count(*) > 0
"""

_TIMELINE = """
    INSERT INTO timeline
    WITH
    processes AS (
        SELECT pid, any_value(label) AS process FROM trace WHERE ph = 'M' AND name = 'process_name' GROUP BY pid
    ),
    threads AS (
        SELECT pid, tid, any_value(label) AS thread FROM trace WHERE ph = 'M' AND name = 'thread_name' GROUP BY pid, tid
    )
    SELECT $iteration, process, thread, TRY_CAST(tid AS BIGINT),
           coalesce(process, pid, '') || '/' || coalesce(thread, tid, ''),
           name, cat, ts, greatest(dur, 0), task_type, TRY_CAST(src AS BIGINT), TRY_CAST(dst AS BIGINT),
           transport, link, TRY_CAST(coalesce(bytes, bytes_before_2023) AS BIGINT)
    FROM trace
    LEFT JOIN processes USING (pid)
    LEFT JOIN threads USING (pid, tid)
    WHERE ph = 'X' AND ts IS NOT NULL
"""

_STEP_OF = """
    LEFT JOIN step_marks AS mark
           ON event.iteration IS NULL AND event.start >= mark.start AND event.start < mark.finish
"""

_STEPS = """
    WITH
    lanes AS (
        SELECT DISTINCT name AS lane, start, start + duration AS finish
        FROM timeline WHERE process = 'Overlap Analysis'
    ),
    clipped AS (
        SELECT mark.step, mark.start AS step_start, lane, lanes.start AS first,
               least(lanes.finish, mark.finish) - greatest(lanes.start, mark.start) AS length
        FROM lanes JOIN step_marks AS mark ON lanes.start < mark.finish AND lanes.finish > mark.start
    ),
    split AS (
        SELECT step, step_start,
               coalesce(sum(length) FILTER (lane = 'Computing'), 0) AS computing,
               coalesce(sum(length) FILTER (lane = 'Communication'), 0) AS communication,
               coalesce(sum(length) FILTER (lane = 'Communication(Not Overlapped)'), 0) AS exposed,
               coalesce(sum(length) FILTER (lane = 'Free'), 0) AS free,
               min(first) FILTER (lane IN ('Computing', 'Communication')) AS first_work
        FROM clipped GROUP BY step, step_start
    )
    SELECT mark.step, mark.start, mark.finish AS "end", mark.finish - mark.start AS duration,
           mark.forward - mark.start AS data_wait, mark.backward - mark.forward AS forward_backward,
           mark.finish - mark.backward AS tail, computing::BIGINT AS computing,
           communication::BIGINT AS communication, (communication - exposed)::BIGINT AS overlapped,
           exposed::BIGINT AS exposed, free::BIGINT AS free, greatest(first_work - mark.start, 0) AS preparing
    FROM step_marks AS mark
    LEFT JOIN split ON split.step_start = mark.start AND split.step IS NOT DISTINCT FROM mark.step
"""

_IS_COLLECTIVE = """
    process IN ('HCCL', 'Communication')
    AND (thread LIKE '%Communication%' OR (coalesce(thread, '') NOT LIKE 'Plane%' AND name LIKE 'hcom%'))
"""

_KERNELS = f"""
    WITH
    computing AS (
        SELECT DISTINCT iteration, name, start, duration,
               CASE task_type WHEN 'KERNEL_AICORE' THEN 'AI_CORE' WHEN 'KERNEL_AIVEC' THEN 'AI_VECTOR_CORE'
                              WHEN 'KERNEL_AICPU' THEN 'AI_CPU' ELSE task_type END AS core,
               coalesce(TRY_CAST(regexp_extract(thread, '^Stream (\\d+)$', 1) AS BIGINT), tid) AS stream
        FROM timeline
        WHERE process = 'Ascend Hardware' AND coalesce(thread, '') NOT LIKE 'Step Trace%'
          AND (task_type IS NULL OR regexp_matches(task_type, '^(AI_|AIV|KERNEL_|MIX_|DSA|HOST_CPU)'))
    ),
    communicating AS (
        SELECT DISTINCT iteration, name, start, duration, 'COMMUNICATION' AS core, NULL::BIGINT AS stream
        FROM timeline WHERE {_IS_COLLECTIVE}
    ),
    event AS (FROM computing UNION ALL FROM communicating)
    SELECT coalesce(event.iteration, mark.step) AS step, event.name, event.core, event.stream, event.start,
           event.duration, nullif(regexp_extract(event.name, '([A-Za-z0-9_]+)-op\\d+[^/]*$', 1), '') AS type
    FROM event {_STEP_OF}
"""

_OPERATORS = f"""
    CREATE OR REPLACE TEMP TABLE hccl_collectives AS
    WITH event AS (SELECT DISTINCT iteration, thread, tid, name, start, duration FROM timeline WHERE {_IS_COLLECTIVE})
    SELECT row_number() OVER (ORDER BY event.start) AS op, coalesce(event.iteration, mark.step) AS step,
           -- The name has only the last digits of the communicator's hash, equal on all its ranks.
           nullif(regexp_extract(event.name, '^hcom_[A-Za-z]+?_*_(\\d+)_\\d+_\\d+', 1), '') AS "group",
           event.name, event.start, event.duration,
           CASE WHEN thread LIKE 'Group%' THEN tid ELSE -1 END AS lane
    FROM event {_STEP_OF}
"""

_TASKS = """
    INSERT INTO hccl_tasks
    WITH
    task AS (
        SELECT DISTINCT iteration, tid, thread, replace(name, ' ', '_') AS kind, start, duration, src, dst, transport,
               link, size
        FROM timeline WHERE process IN ('HCCL', 'Communication') AND thread LIKE 'Plane%'
    ),
    lanes AS (
        SELECT DISTINCT lane FROM hccl_collectives
    ),
    placed AS (
        -- The planes of a group follow its thread; if there is one thread for all groups, they belong to that.
        SELECT task.*, (SELECT max(lane) FROM lanes WHERE lane <= task.tid) AS lane FROM task
    )
    SELECT collective.op, placed.tid,
           CASE WHEN kind LIKE 'RDMASend%' THEN 'RDMASend' ELSE kind END,
           placed.start, placed.duration, src, dst, transport, link, size
    FROM placed ASOF JOIN hccl_collectives AS collective ON placed.lane = collective.lane AND placed.start >= collective.start
    WHERE placed.start <= collective.start + collective.duration
"""
