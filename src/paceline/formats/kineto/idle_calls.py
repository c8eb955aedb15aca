"""During which calls of the device's runtime the device did nothing: what the host was doing instead of launching work.

    time of a call = its part inside a step that no device work covers

An idle device while the host copies, allocates or starts the runtime is explained by that call; while it launches, or runs
Python between two calls, the host is slow.
"""

from __future__ import annotations

import numpy as np

from paceline.formats.base import Sink
from paceline.formats.intervals import Times, merge_intervals
from paceline.formats.kineto.calls import IS_OPERATOR, USERS_FRAME, enclosing
from paceline.formats.kineto.categories import IS_RUNTIME
from paceline.formats.kineto.device_steps import DeviceSteps, StepBounds

_CALLS = f"""
    SELECT row, (hash(pid, tid) >> 1)::BIGINT AS thread, start, start + duration AS "end"
    FROM kineto_spans WHERE {IS_RUNTIME} AND duration > 0 ORDER BY row
"""

_FOUND = """
    SELECT pieces.step, calls.name, operators.name AS operator, frames.name AS code, count(*) AS count,
           sum(pieces.idle)::BIGINT AS time
    FROM idle_pieces AS pieces JOIN trace AS calls ON calls.rowid = pieces.call
    LEFT JOIN trace AS operators ON operators.rowid = pieces.operator
    LEFT JOIN trace AS frames ON frames.rowid = pieces.frame
    GROUP BY ALL
"""


def read_idle_calls(steps: DeviceSteps, busy_start: Times, busy_end: Times, sink: Sink) -> None:
    """Rows of `idle_calls`; none where nothing ran on the device, or no step is known."""
    if not sink.wants("idle_calls") or not len(busy_start) or not len(steps.bounds):
        return
    columns = sink.connection.execute(_CALLS).fetchnumpy()
    row, thread, start, end = (columns[name].astype(np.int64) for name in ("row", "thread", "start", "end"))
    call, place, begin, until = pieces_by_step(start, end, steps.bounds)
    idle = until - begin - merge_intervals(busy_start, busy_end).covered(begin, until)
    call, place, idle = (values[idle > 0] for values in (call, place, idle))
    around = {
        name: enclosing(condition, thread[call], start[call], sink)
        for name, condition in {"operator": IS_OPERATOR, "frame": USERS_FRAME}.items()
    }
    connection = sink.connection
    connection.register("idle_pieces", {"call": row[call], "step": steps.bounds.step[place], "idle": idle, **around})
    sink.add_query("idle_calls", _FOUND)
    connection.unregister("idle_pieces")


def pieces_by_step(start: Times, end: Times, bounds: StepBounds) -> tuple[Times, Times, Times, Times]:
    """Intervals cut at the bounds of steps: which interval, which step, begin and end of each piece inside a step."""
    first = np.searchsorted(bounds.end, start, side="right")
    behind = np.searchsorted(bounds.start, end, side="left")
    count = np.maximum(behind - first, 0)
    which = np.repeat(np.arange(len(start)), count)
    place = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + first[which]
    return which, place, np.maximum(start[which], bounds.start[place]), np.minimum(end[which], bounds.end[place])
