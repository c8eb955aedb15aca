"""trace_view.json: timeline events, counters, and where each step begins and ends."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from paceline.formats.ascend_csv import csv_rows, integer, nanoseconds, number
from paceline.formats.rare_events import rare_events
from paceline.formats.reader import Sink
from paceline.formats.trace_events import load_trace, trace_query

_COUNTERS = (
    "MHz", "KB", "value", "Read(MB/s)", "Write(MB/s)", "Throughput(MB/s)", "Hit Rate(%)", "Mata Bw Level",
    "L2 Buffer Bw Level",
)  # fmt: skip
_MARK = b"ProfilerStep#"
_RARE = b"#"
"""One rare character is found three times as fast as the whole mark."""
_LONGEST_EVENT = 1 << 16
_MOST_BRACES = 32


@dataclass(frozen=True)
class StepSpan:
    start: int
    end: int


def read_trace_view(path: Path, sink: Sink) -> None:
    """events: everything that lasts, with tracks named after process and thread.

    The names are known before the spans are read, so that these go through in one query without being kept.
    """
    processes, threads = _track_names(path, sink)
    tracks = [(pid, tid, f"{processes.get(pid, pid)}/{thread}") for (pid, tid), thread in threads.items()]
    unnamed = f"CASE pid {'WHEN ? THEN ? ' * len(processes)}ELSE pid END" if processes else "pid"
    with trace_query(path, phases="X") as (spans, array):
        sink.add_query(
            "events",
            f"""
            WITH tracks AS (
                SELECT unnest(?::VARCHAR[]) AS pid, unnest(?::VARCHAR[]) AS tid, unnest(?::VARCHAR[]) AS track
            )
            SELECT coalesce(track, coalesce({unnamed}, '') || '/' || coalesce(tid, '')) AS track,
                   name, cat AS category, ts AS start, dur AS duration
            FROM ({spans}) LEFT JOIN tracks USING (pid, tid)
            """,
            [*([track[i] for track in tracks] for i in range(3)), *chain.from_iterable(processes.items()), array],
        )


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
    """counters, without parsing the timeline around them where they are few."""
    samples = rare_events(path).samples
    if samples is None:
        _parse_trace_counters(path, sink)
        return
    rows = [
        (sample.name, series, nanoseconds(bytes(sample.ts).decode().strip('"')), value)
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
        seen = set()
        end = data.find(_RARE) + 1
        while end:
            if data[max(0, end - len(_MARK)) : end] == _MARK:
                event = _enclosing_event(data, end - len(_MARK))
                step = integer(str(event.get("name", "")).rpartition("#")[2])
                start, length = nanoseconds(str(event.get("ts", ""))), nanoseconds(str(event.get("dur", "")))
                if step is not None and start is not None and length is not None and step not in seen:
                    seen.add(step)
                    yield step, StepSpan(start, start + length)
            end = data.find(_RARE, end) + 1


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
