"""trace_view.json: timeline events, counters, and start and end of each step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from paceline.core.message import message
from paceline.formats.base import Sink
from paceline.formats.chrome_trace.rare_events import rare_events
from paceline.formats.chrome_trace.step_marks import MarkedSpans, StepSpan, marked_spans, waited_for_input
from paceline.formats.chrome_trace.trace_events import load_trace
from paceline.formats.csv_files import csv_rows
from paceline.formats.step_split import DeviceWork, Spans, clip, length, merge_spans, split_step
from paceline.formats.units import integer, ns_from_us, number

_SPLIT = ("computing", "communication", "overlapped", "exposed", "free", "preparing")
_COUNTERS = (
    "MHz",
    "KB",
    "value",
    "Read(MB/s)",
    "Write(MB/s)",
    "Throughput(MB/s)",
    "Hit Rate(%)",
    "Mata Bw Level",
    "L2 Buffer Bw Level",
)


_EVENTS = """
    SELECT track, name, cat AS category, ts AS start, dur AS duration, {args} AS args
    FROM trace_view JOIN trace_tracks USING (pid, tid) WHERE ph = 'X' AND ts IS NOT NULL
"""
_FLOWS = """
    WITH ends AS (
        SELECT ph, cat, name, id, ts, track FROM trace_view JOIN trace_tracks USING (pid, tid)
        WHERE ph IN ('s', 'f') AND ts IS NOT NULL AND id IS NOT NULL
    )
    SELECT target.cat AS category, target.name, source.track AS start_track, source.ts AS start,
           target.track AS end_track, target.ts AS "end"
    FROM (FROM ends WHERE ph = 'f') AS target ASOF JOIN (FROM ends WHERE ph = 's') AS source
      ON source.cat = target.cat AND source.name = target.name AND source.id = target.id AND source.ts <= target.ts
"""
"""Each end with the begin before it: a begin may have several ends, and numbers are used again."""


def read_trace_view(path: Path, sink: Sink) -> None:
    """Rows of `events` (all spans, with tracks named after process and thread) and `flows` (arrows between them)."""
    connection = sink.connection
    load_trace(connection, path, table="trace_view", phases="Xsf", all_args=sink.wants("events"))
    processes, threads = _track_names(path, sink)
    named = [(pid, tid, f"{processes.get(pid, pid)}/{thread}") for (pid, tid), thread in threads.items()]
    connection.execute(
        """
        CREATE OR REPLACE TEMP TABLE trace_tracks AS
        WITH named AS (
            SELECT unnest(?::VARCHAR[]) AS pid, unnest(?::VARCHAR[]) AS tid, unnest(?::VARCHAR[]) AS track
        ), processes AS (
            SELECT unnest(?::VARCHAR[]) AS pid, unnest(?::VARCHAR[]) AS process
        )
        SELECT coalesce(pid, '') AS pid, coalesce(tid, '') AS tid,
               coalesce(track, coalesce(process, pid, '') || '/' || coalesce(tid, '')) AS track
        FROM (SELECT DISTINCT pid, tid FROM trace_view) LEFT JOIN named USING (pid, tid) LEFT JOIN processes USING (pid)
        """,
        [*([row[i] for row in named] for i in range(3)), list(processes), list(processes.values())],
    )
    connection.execute(
        "UPDATE trace_view SET pid = coalesce(pid, ''), tid = coalesce(tid, '') WHERE pid IS NULL OR tid IS NULL"
    )
    sink.add_query("events", _EVENTS.format(args="args" if sink.wants("events") else "NULL"))
    sink.add_query("flows", _FLOWS)
    connection.execute("DROP TABLE trace_view")
    connection.execute("DROP TABLE trace_tracks")


def _track_names(path: Path, sink: Sink) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Names of processes by pid, and of threads by pid and tid."""
    rare = rare_events(path).names
    if rare is None:
        load_trace(sink.connection, path, table="metadata", args={"label": "name"}, phases="M")
        named = sink.connection.execute("SELECT name, pid, tid, label FROM metadata").fetchall()
        sink.connection.execute("DROP TABLE metadata")
    else:
        named = [(event.name, _text(event.pid), _text(event.tid), _text(event.args.get("name"))) for event in rare]
    processes: dict[str, str] = {}
    threads: dict[tuple[str, str], str] = {}
    for name, pid, tid, label in named:
        if name == "process_name" and None not in (pid, label):
            processes.setdefault(pid, label)
        elif name == "thread_name" and None not in (pid, tid, label):
            threads.setdefault((pid, tid), label)
    return processes, threads


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def read_trace_counters(path: Path, sink: Sink) -> None:
    """Rows of `counters`; if there are few, without parsing the timeline around them."""
    samples = rare_events(path).samples
    if samples is None:
        _parse_trace_counters(path, sink)
        return
    rows = [
        (sample.name, series, ns_from_us(bytes(sample.ts).decode().strip('"')), value)
        for sample in samples
        for series, recorded in sample.args.items()
        if series in _COUNTERS and (value := number(_text(recorded))) is not None
    ]
    if rows:
        names, series, times, values = zip(*rows, strict=True)
        sink.add("counters", {"name": names, "series": series, "time": times, "value": values})


def _parse_trace_counters(path: Path, sink: Sink) -> None:
    args = {f"counter {index}": key for index, key in enumerate(_COUNTERS)}
    load_trace(sink.connection, path, table="trace_view", args=args, phases="C")
    series = ", ".join(f'TRY_CAST("counter {index}" AS DOUBLE) AS "{key}"' for index, key in enumerate(_COUNTERS))
    sink.add_query(
        "counters",
        f"""
        WITH samples AS (SELECT name, ts AS time, {series} FROM trace_view)
        UNPIVOT samples ON COLUMNS(* EXCLUDE (name, time)) INTO NAME series VALUE value
        """,
    )
    sink.connection.execute("DROP TABLE trace_view")


def read_steps(step_trace: Path | None, trace_view: Path | None, sink: Sink) -> None:
    """Rows of `steps`: the split from step_trace_time.csv, start, end and input wait from the timeline's marks.

    Without step_trace_time.csv the split is computed from the timeline's overlap analysis, from which the profiler writes it.
    """
    marked = marked_spans(trace_view) if trace_view and trace_view.stat().st_size else MarkedSpans({}, [])
    if step_trace is not None:
        rows = [_step_row(row, marked) for row in csv_rows(step_trace, ("Step", "Computing", "Free"))]
    elif trace_view is not None and marked.steps:
        rows = _computed_rows(trace_view, marked, sink)
    else:
        return
    if rows:
        sink.add("steps", {column: [row[column] for row in rows] for column in rows[0]})
    else:
        sink.warn(message("no_steps"), file=step_trace)


def _step_row(row: dict[str, str], marked: MarkedSpans) -> dict[str, int | None]:
    step = integer(row["Step"]) or 0
    span: StepSpan | None = marked.steps.get(step)
    preparing = ns_from_us(row.get("Preparing"))
    computing, free = ns_from_us(row["Computing"]), ns_from_us(row["Free"])
    exposed = ns_from_us(row.get("Communication(Not Overlapped)"))
    split = (computing or 0) + (exposed or 0) + (free or 0)
    return {
        "step": step,
        "start": span.start if span else None,
        "end": span.end if span else None,
        "duration": span.end - span.start if span else split,
        "computing": computing,
        "communication": ns_from_us(row.get("Communication")),
        "overlapped": ns_from_us(row.get("Overlapped")),
        "exposed": exposed,
        "free": free,
        "bubble": ns_from_us(row.get("Bubble")),
        "data_wait": waited_for_input(marked.loading, span.start if span else None, preparing),
        "preparing": preparing,
    }


# -- computing the split ---------------------------------------------------------------------------------------------


def _computed_rows(trace_view: Path, marked: MarkedSpans, sink: Sink) -> list[dict[str, int | None]]:
    """As step_trace_time.csv says it; only durations where the timeline has no overlap analysis."""
    load_trace(sink.connection, trace_view, table="spans", phases="X")
    work, received = _device_work(trace_view, sink)
    sink.connection.execute("DROP TABLE spans")
    both = work.both
    rows: list[dict[str, int | None]] = []
    for step, span in marked.steps.items():
        split = split_step(work, both, span.start, span.end)
        row: dict[str, int | None] = {"step": step, "start": span.start, "end": span.end}
        row["duration"] = span.end - span.start
        row |= {name: split.get(name) for name in _SPLIT}
        row["bubble"] = length(clip(received, span.start, span.end)) if split else None
        row["data_wait"] = waited_for_input(marked.loading, span.start, row["preparing"])
        rows.append(row)
    return rows


def _device_work(trace_view: Path, sink: Sink) -> tuple[DeviceWork, Spans]:
    """When the device computed and communicated by the overlap analysis, and received from other stages."""
    processes, _ = _track_names(trace_view, sink)
    analysis = [pid for pid, name in processes.items() if name == "Overlap Analysis"]
    inside = "list_contains(?::VARCHAR[], pid) AND name = ?"
    work = DeviceWork(
        _merged(sink, inside, [analysis, "Computing"]), _merged(sink, inside, [analysis, "Communication"])
    )
    return work, _merged(sink, "NOT list_contains(?::VARCHAR[], pid) AND name ILIKE 'hcom_receive%'", [analysis])


def _merged(sink: Sink, condition: str, parameters: list[object]) -> Spans:
    found = sink.connection.execute(
        f"SELECT ts, ts + dur AS stop FROM spans WHERE dur > 0 AND {condition}", parameters
    ).fetchnumpy()
    return merge_spans(np.array([found["ts"], found["stop"]], dtype=np.int64))
