"""trace_view.json: timeline events, counters, and where each step begins and ends."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.formats.ascend_csv import csv_rows, integer, nanoseconds
from paceline.formats.reader import Sink
from paceline.formats.trace_counters import counters_only
from paceline.formats.trace_events import load_trace

_COUNTERS = (
    "MHz", "KB", "value", "Read(MB/s)", "Write(MB/s)", "Throughput(MB/s)", "Hit Rate(%)", "Mata Bw Level",
    "L2 Buffer Bw Level",
)  # fmt: skip
_MARK = b"ProfilerStep#"
_LONGEST_EVENT = 1 << 16
_MOST_BRACES = 32


@dataclass(frozen=True)
class StepSpan:
    start: int
    end: int


def read_trace_view(path: Path, sink: Sink) -> None:
    """events: everything that lasts, with tracks named after process and thread."""
    load_trace(sink.connection, path, table="trace_view", args={"label": "name"}, phases="XM")
    sink.add_query("events", TRACK_EVENTS.format(table="trace_view"))
    sink.connection.execute("DROP TABLE trace_view")


def read_trace_counters(path: Path, sink: Sink) -> None:
    """counters, without parsing the timeline around them where they are few."""
    args = {f"counter {index}": key for index, key in enumerate(_COUNTERS)}
    with counters_only(path) as samples:
        load_trace(sink.connection, samples, table="trace_view", args=args)
    series = ", ".join(f'TRY_CAST("counter {index}" AS DOUBLE) AS "{key}"' for index, key in enumerate(_COUNTERS))
    sink.add_query(
        "counters",
        f"""
        WITH samples AS (SELECT name, ts AS time, {series} FROM trace_view WHERE ph = 'C')
        UNPIVOT samples ON COLUMNS(* EXCLUDE (name, time)) INTO NAME series VALUE value
        """,
    )
    sink.connection.execute("DROP TABLE trace_view")


TRACK_EVENTS = """
    WITH
    processes AS (
        SELECT pid, any_value(label) AS process FROM {table} WHERE ph = 'M' AND name = 'process_name' GROUP BY pid
    ),
    threads AS (
        SELECT pid, tid, any_value(label) AS thread
        FROM {table} WHERE ph = 'M' AND name = 'thread_name' GROUP BY pid, tid
    )
    SELECT coalesce(process, pid, '') || '/' || coalesce(thread, tid, '') AS track,
           name, cat AS category, ts AS start, dur AS duration
    FROM {table} AS event
    LEFT JOIN processes USING (pid)
    LEFT JOIN threads USING (pid, tid)
    WHERE ph = 'X' AND ts IS NOT NULL
"""


def read_steps(step_trace: Path | None, trace_view: Path | None, sink: Sink) -> None:
    """steps: the split from step_trace_time.csv, begin and end from the timeline's ProfilerStep#N events."""
    spans = dict(step_spans(trace_view)) if trace_view and trace_view.stat().st_size else {}
    if step_trace is None:
        if spans:
            sink.add("steps", {
                "step": list(spans), "start": [span.start for span in spans.values()],
                "end": [span.end for span in spans.values()],
                "duration": [span.end - span.start for span in spans.values()],
            })  # fmt: skip
        return
    rows = [_step_row(row, spans) for row in csv_rows(step_trace, ("Step", "Computing", "Free"))]
    if rows:
        sink.add("steps", {column: [row[column] for row in rows] for column in rows[0]})
    else:
        sink.warn("holds no step", file=step_trace)


def step_spans(trace_view: Path) -> Iterator[tuple[int, StepSpan]]:
    """Find ProfilerStep#N events by scanning bytes: no need to parse hundreds of MB for a handful of steps."""
    with trace_view.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        position, seen = data.find(_MARK), set()
        while position >= 0:
            event = _enclosing_event(data, position)
            step = integer(str(event.get("name", "")).rpartition("#")[2])
            start, length = nanoseconds(str(event.get("ts", ""))), nanoseconds(str(event.get("dur", "")))
            if step is not None and start is not None and length is not None and step not in seen:
                seen.add(step)
                yield step, StepSpan(start, start + length)
            position = data.find(_MARK, position + len(_MARK))


def _enclosing_event(data: mmap.mmap, position: int) -> dict[str, Any]:
    """The JSON object whose name holds this position; {} when there is none."""
    decoder = json.JSONDecoder()
    low = max(0, position - _LONGEST_EVENT)
    # latin-1 keeps one character per byte, so that offsets stay right whatever the text is.
    window = data[low : position + _LONGEST_EVENT].decode("latin-1")
    brace = window.rfind("{", 0, position - low + 1)
    for _ in range(_MOST_BRACES):
        if brace < 0:
            break
        try:
            event, _ = decoder.raw_decode(window, brace)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict) and str(event.get("name", "")).startswith("ProfilerStep#"):
            return event
        brace = window.rfind("{", 0, brace)
    return {}


def _step_row(row: dict[str, str], spans: dict[int, StepSpan]) -> dict[str, int | None]:
    step = integer(row["Step"]) or 0
    span = spans.get(step)
    computing, free = nanoseconds(row["Computing"]), nanoseconds(row["Free"])
    exposed = nanoseconds(row.get("Communication(Not Overlapped)"))
    split = (computing or 0) + (exposed or 0) + (free or 0)
    return {
        "step": step,
        "start": span.start if span else None,
        "end": span.end if span else None,
        "duration": span.end - span.start if span else split,
        "computing": computing,
        "communication": nanoseconds(row.get("Communication")),
        "overlapped": nanoseconds(row.get("Overlapped")),
        "exposed": exposed,
        "free": free,
        "bubble": nanoseconds(row.get("Bubble")),
        "preparing": nanoseconds(row.get("Preparing")),
    }
