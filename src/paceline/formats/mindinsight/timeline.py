"""Timeline of one rank, {ascend_,gpu_,}timeline_display_{id}.json: a Chrome trace, truncated at a size limit.

Times are µs since the first event. They are converted to the clock of the step trace with the communication operators
(which MindSpore copied from there), with the lane of steps, or with a kernel of output_timeline_data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, median_low

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import Sink
from paceline.formats.chrome_trace.trace_events import load_trace
from paceline.formats.mindinsight.steps import StepTrace, read_step_trace
from paceline.formats.units import scaled

LIMITS = (20_000_000, 20 << 20, 500_000_000, 500 << 20)
"""Bytes at which MindSpore stops writing: 20 MB by default, 500 MB with the Profiler's timeline_limit."""

FITS_NS = 2_000
"""MindSpore copies steps and communication from the step trace: their times differ by rounding only, usually."""

_STEPS_LANE = "100000"


@dataclass(frozen=True)
class TimelineFiles:
    timeline: Path
    step_trace: Path | None
    kernels: Path | None
    ai_cpu_is_known: bool = False
    """Whether another file has the operators of the AI CPU."""


_EVENTS = """
    WITH processes AS (
        SELECT pid, max(coalesce(labels, label)) AS name
        FROM timeline WHERE ph = 'M' AND name IN ('process_labels', 'process_name') GROUP BY pid
    ), threads AS (
        SELECT pid, tid, max(label) AS name FROM timeline WHERE ph = 'M' AND name = 'thread_name' GROUP BY pid, tid
    )
    SELECT concat(coalesce(processes.name, 'process ' || event.pid), '/', coalesce(threads.name, event.tid)) AS track,
           event.name, coalesce(event.type, event.cat) AS category, event.ts + ? AS start, event.dur AS duration
    FROM timeline AS event
    LEFT JOIN processes ON processes.pid = event.pid
    LEFT JOIN threads ON threads.pid = event.pid AND threads.tid = event.tid
    WHERE event.ph = 'X' AND event.ts IS NOT NULL
"""


def read_timeline(files: TimelineFiles, sink: Sink) -> None:
    _warn_about_limit(files.timeline, sink)
    args = {"labels": "labels", "label": "name", "type": "type", "full_name": "fullname"}
    load_trace(sink.connection, files.timeline, table="timeline", args=args)
    try:
        offset = timeline_offset(files, sink)
        if offset is None:
            sink.warn(message("timeline_clock"), file=files.timeline)
        sink.add_query("events", _EVENTS, [offset or 0])
    finally:
        sink.connection.execute("DROP TABLE timeline")


def _warn_about_limit(path: Path, sink: Sink) -> None:
    size = path.stat().st_size
    if any(abs(size - limit) <= limit // 100 for limit in LIMITS):
        sink.warn(message("timeline_limit", size=size), file=path)


# -- the clock --------------------------------------------------------------------------------------------------------


def timeline_offset(files: TimelineFiles, sink: Sink) -> int | None:
    """ns to add to the timeline's times; None if it cannot be aligned."""
    trace = _step_trace(files.step_trace, sink)
    for differences in (_by_operators(trace, sink), _by_steps(trace, sink), _by_kernel(files.kernels, sink)):
        if differences:
            if not _fits(differences):
                sink.warn(message("mixed_step_trace"), file=files.timeline, kind="disagreement")
            return median_low(differences)
    return None


def _fits(differences: Sequence[int]) -> bool:
    """Whether most events agree on the offset.

    >>> _fits([5_000_000, 5_000_010, 9_000_000]), _fits([5_000_000, 5_700_000, 4_100_000])
    (True, False)
    """
    return _scatter(differences) <= FITS_NS


def _scatter(differences: Sequence[int]) -> float:
    middle = median_low(differences)
    return median(abs(difference - middle) for difference in differences)


def _step_trace(path: Path | None, sink: Sink) -> StepTrace:
    try:
        return read_step_trace(path, sink, windows=True) if path else StepTrace()
    except FormatError:
        return StepTrace()  # the section of the steps reports the error


def _by_operators(trace: StepTrace, sink: Sink) -> list[int]:
    """Differences of the n-th event and the n-th window of an operator; the timeline has only the last part of its name."""
    names = sorted({_short(window.name) for window in trace.windows})
    found: dict[str, list[int]] = {}
    query = """
        SELECT name, ts FROM (
            SELECT regexp_replace(name, '^stream_([0-9]+|ops)_[0-9]+_', '') AS name, ts
            FROM timeline WHERE ph = 'X' AND ts IS NOT NULL
        ) WHERE list_contains(?, name) ORDER BY ts
    """
    for name, start in sink.connection.execute(query, [names]).fetchall() if names else ():
        found.setdefault(name, []).append(start)
    windows: dict[str, list[int]] = {}
    for window in sorted(trace.windows, key=lambda window: window.start):
        windows.setdefault(_short(window.name), []).append(window.start)
    # A truncated timeline lacks the last executions, a step trace at times the first.
    from_first = _differences(windows, found)
    if not from_first or _fits(from_first):
        return from_first
    from_last = _differences(_reversed(windows), _reversed(found))
    return min(from_first, from_last, key=_scatter)


def _differences(windows: Mapping[str, Sequence[int]], shown: Mapping[str, Sequence[int]]) -> list[int]:
    pairs = (zip(windows[name], starts, strict=False) for name, starts in shown.items())
    return [start - begin for pair in pairs for start, begin in pair]


def _reversed(starts: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    return {name: each[::-1] for name, each in starts.items()}


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def _by_steps(trace: StepTrace, sink: Sink) -> list[int]:
    query = "SELECT name, min(ts) FROM timeline WHERE ph = 'X' AND tid = ? AND ts IS NOT NULL GROUP BY name"
    starts = dict(sink.connection.execute(query, [_STEPS_LANE]).fetchall())
    return [step.start - starts[str(step.number)] for step in trace.steps if str(step.number) in starts]


def _by_kernel(path: Path | None, sink: Sink) -> list[int]:
    """The first execution of one kernel in both files."""
    if path is None:
        return []
    with path.open("rb") as file:
        lines = file.read(65536).decode("utf-8", "replace").splitlines()[1:2]
    cells = lines[0].split(",") if lines else []
    start = scaled(cells[2], 1e6) if len(cells) == 4 else None
    query = "SELECT min(ts) FROM timeline WHERE ph = 'X' AND (full_name = ? OR (full_name IS NULL AND name = ?))"
    if start is None:
        return []
    [(shown,)] = sink.connection.execute(query, [cells[0], _short(cells[0])]).fetchall()
    return [] if shown is None else [start - shown]
