"""Steps of one rank from Ascend SQLite results: start and end, and how each step was spent.

StepTraceTime of analysis.db is used as recorded (µs). Without it the split is computed in the same way (step_split.py) from
OVERLAP_ANALYSIS, or from the tasks, clipped to the step:

    data_wait     = part of `preparing` in which torch's DataLoader was asked for a batch, if that was recorded
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.collective_names import op_of
from paceline.core.message import message
from paceline.formats.ascend_db.columns import Column
from paceline.formats.ascend_db.database import Database, Join, open_database
from paceline.formats.base import Sink
from paceline.formats.chrome_trace.step_marks import LOADING, StepSpan, waited_for_input
from paceline.formats.step_split import NO_SPANS, DeviceWork, Spans, clip, length, merge_spans, split_step
from paceline.formats.step_windows import NO_STEPS, StepWindows
from paceline.formats.units import scaled_decimal

_TRACE_COLUMNS = {
    "computing": "computing",
    "exposed": "communication_not_overlapped",
    "overlapped": "overlapped",
    "communication": "communication",
    "free": "free",
    "bubble": "bubble",
    "preparing": "preparing",
}
_STEP = re.compile(r"(?:step)?\s*(\d{1,18})$", re.IGNORECASE)


def step_windows(database: Database | None) -> StepWindows:
    """The steps in STEP_TIME; none if the database has no such table."""
    if database is None or not database.has("STEP_TIME", "id", "startNs", "endNs"):
        return NO_STEPS
    number, start, end = (database.integer(f"STEP_TIME.{column}") for column in ("id", "startNs", "endNs"))
    rows = database.rows(
        f"SELECT {number} AS step, {start} AS start, {end} AS stop FROM STEP_TIME"
        " WHERE step IS NOT NULL AND start >= 0 AND stop >= start ORDER BY start"
    )
    return StepWindows(*np.array(rows, dtype=np.int64).T) if rows else NO_STEPS


def step_number(text: Any) -> int | None:
    """50 for 'step50', '50' or 50; 0 for 'step' or '' (recordings without steps); otherwise None.

    >>> step_number("step50"), step_number(" 50"), step_number("step"), step_number("warm-up")
    (50, 50, 0, None)
    """
    plain = "" if text is None else str(text).strip()
    if plain in ("", "step"):
        return 0
    found = _STEP.match(plain)
    return int(found[1]) if found else None


def read_steps(main: Path | None, analysis: Path | None, sink: Sink) -> None:
    """Rows of `steps`: StepTraceTime, and computed rows for the steps that it lacks."""
    with ExitStack() as stack:
        database = stack.enter_context(open_database(main)) if main else None
        windows = step_windows(database)
        recorded = _recorded(stack.enter_context(open_database(analysis)), sink) if analysis else {}
        rows = [_with_window(step, split, windows) for step, split in recorded.items()]
        if database is not None and (not recorded or set(windows.steps.tolist()) - set(recorded)):
            rows += _computed(database, windows, recorded, sink)
        loading = _loading(database) if database else []
    if rows:
        rows = [row | {"data_wait": waited_for_input(loading, row.get("start"), row.get("preparing"))} for row in rows]
        columns = ("step", "start", "end", "duration", *_TRACE_COLUMNS, "data_wait")
        sink.add("steps", {column: [row.get(column) for row in rows] for column in columns})


def _loading(database: Database) -> list[StepSpan]:
    """When torch's DataLoader was asked for a batch."""
    if not database.has("PYTORCH_API", "name", "startNs", "endNs") or not database.has("STRING_IDS", "id", "value"):
        return []
    known = database.names("PYTORCH_API.name").known
    loading = [key for key, name in known.items() if isinstance(key, int) and name.startswith(LOADING)]
    spans = _spans(database, "PYTORCH_API", "name", loading) if loading else NO_SPANS
    return [StepSpan(start, end) for start, end in spans.T.tolist()]


def _recorded(database: Database, sink: Sink) -> dict[int, dict[str, int | None]]:
    """StepTraceTime: step → split in ns."""
    if not database.has("StepTraceTime", "step"):
        return {}
    values = ", ".join(database.any(f"StepTraceTime.{column}") for column in _TRACE_COLUMNS.values())
    recorded = {}
    for name, *split in database.rows(f"SELECT step, {values} FROM StepTraceTime"):
        step = step_number(name)
        if step is None or step in recorded:
            sink.warn(message("second_step", name=repr(name)), file=database.path)
            continue
        recorded[step] = dict(zip(_TRACE_COLUMNS, (scaled_decimal(value, 1000) for value in split), strict=True))
    return recorded


def _with_window(step: int, split: dict[str, int | None], windows: StepWindows) -> dict[str, int | None]:
    for index in np.flatnonzero(windows.steps == step):
        start, end = int(windows.starts[index]), int(windows.ends[index])
        return {"step": step, "start": start, "end": end, "duration": end - start, **split}
    parts = [split["computing"], split["exposed"], split["free"]]
    known = [part for part in parts if part is not None]
    return {"step": step, "duration": sum(known) if len(known) == len(parts) else None, **split}


# -- computing the split ---------------------------------------------------------------------------------------------


def _computed(
    database: Database, windows: StepWindows, recorded: dict[int, Any], sink: Sink
) -> list[dict[str, int | None]]:
    work = _device_work(database)
    received, both = _received(database), work.both
    if not len(windows.steps):
        if not both.size:
            return []
        sink.warn(message("one_step"), file=database.path)
        limits = [(None, int(both[0, 0]), int(both[1, -1]))]
    else:
        limits = list(zip(windows.steps.tolist(), windows.starts.tolist(), windows.ends.tolist(), strict=True))
    return [
        {"step": step, "start": start, "end": end, "duration": end - start}
        | split_step(work, both, start, end)
        | {"bubble": length(clip(received, start, end))}
        for step, start, end in limits
        if step not in recorded
    ]


def _device_work(database: Database) -> DeviceWork:
    if database.has("OVERLAP_ANALYSIS", "startNs", "endNs", "type"):
        return DeviceWork(
            _spans(database, "OVERLAP_ANALYSIS", "type", [0]), _spans(database, "OVERLAP_ANALYSIS", "type", [1])
        )
    known = database.has("COMPUTE_TASK_INFO", "globalTaskId") and database.has("TASK", "globalTaskId")
    computing = Join("COMPUTE_TASK_INFO", "globalTaskId")
    return DeviceWork(
        _spans(database, "TASK", join=computing) if known else NO_SPANS, _spans(database, "COMMUNICATION_OP")
    )


def _received(database: Database) -> Spans:
    """Receives, which wait for a neighbouring pipeline stage: Ascend calls them the bubble."""
    known = database.names("COMMUNICATION_OP.opName").known
    receives = [key for key, name in known.items() if isinstance(key, int) and op_of(name) == "receive"]
    return _spans(database, "COMMUNICATION_OP", "opName", receives) if receives else NO_SPANS


def _spans(
    database: Database, table: str, column: str | None = None, values: Sequence[int] = (), join: Join | None = None
) -> Spans:
    """When something of a table ran, or of its rows with these values."""
    if not database.has(table, "startNs", "endNs"):
        return NO_SPANS
    times = (f"{table}.startNs", f"{table}.endNs")
    # Merging chunk by chunk keeps memory small: millions of tasks form few intervals.
    merged = NO_SPANS
    for starts, ends, *others in database.timed_columns(table, times, [f"{table}.{column}"] if column else [], join):
        spans = np.stack([np.ma.getdata(starts), np.ma.filled(ends, -1)])
        chosen = spans[1] >= spans[0]
        if column:
            chosen &= _is_one_of(others[0], values)
        merged = merge_spans(np.concatenate([merged, spans[:, chosen]], axis=1))
    return merged


def _is_one_of(column: Column, values: Sequence[int]) -> Column:
    if column.dtype != object:
        return np.isin(np.ma.getdata(column), values) & ~np.ma.getmaskarray(column)
    wanted = set(values)
    return np.array([isinstance(value, int) and value in wanted for value in column.tolist()], dtype=np.bool_)
