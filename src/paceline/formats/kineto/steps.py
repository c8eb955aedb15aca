"""Steps of a torch trace, from its ProfilerStep#N annotations, and how each was spent.

Without calls of the profiler's step() there are no such annotations: then a step ends where the optimizer's step ends,
which torch always records.

    computing      union of the device's work except communication
    communication  union of the communication kernels
    overlapped     |computing ∩ communication|
    exposed        communication − overlapped
    free           duration − |computing ∪ communication|
    data_wait      union of the DataLoader's __next__, if it was recorded

all clipped to the step. In a trace without device work, operators compute and the backend's threads communicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from paceline.formats.base import Sink
from paceline.formats.intervals import Times, merge_intervals

_STEPS = """
    CREATE OR REPLACE TEMP TABLE kineto_steps AS
    WITH annotated AS (
        SELECT TRY_CAST(substr(name, 14) AS BIGINT) AS step, start, start + duration AS end
        FROM kineto_spans
        WHERE starts_with(name, 'ProfilerStep#') AND cat IS DISTINCT FROM 'gpu_user_annotation'
    )
    SELECT step, min(start) AS start, max("end") AS end FROM annotated WHERE step IS NOT NULL GROUP BY step
"""

_RECORDED = """
    SELECT min(start), max(start + duration) FROM kineto_spans WHERE cat IS DISTINCT FROM 'Trace'
"""

_UPDATES = """
    SELECT name, start + duration
    FROM kineto_spans
    WHERE starts_with(name, 'Optimizer.step#') AND cat IS DISTINCT FROM 'gpu_user_annotation'
"""

_OPERATORS = """
    SELECT start, start + duration AS end
    FROM kineto_spans
    WHERE cat IN ('cpu_op', 'Operator') AND NOT regexp_matches(name, '^(c10d::|record_param_comms$)')
      AND (pid, tid) NOT IN (SELECT (pid, tid) FROM kineto_communication WHERE name LIKE '%:%' AND name NOT LIKE 'c10d::%')
"""


_LOADING = """
    SELECT start, start + duration AS end
    FROM kineto_spans
    WHERE starts_with(name, 'enumerate(DataLoader)#') AND cat IS DISTINCT FROM 'gpu_user_annotation'
"""


def stage_steps(sink: Sink) -> None:
    """Create the table `kineto_steps` (step, start, end)."""
    connection = sink.connection
    connection.execute(_STEPS)
    [(begin, end)] = connection.execute(_RECORDED).fetchall()
    if begin is not None and not connection.execute("FROM kineto_steps LIMIT 1").fetchall():
        updates = connection.execute(_UPDATES).fetchall()
        connection.executemany("INSERT INTO kineto_steps VALUES (?, ?, ?)", steps_by_updates(updates, begin, end))


def steps_by_updates(updates: Sequence[tuple[str, int]], begin: int, end: int) -> list[tuple[int, int, int]]:
    """(step, start, end) of a recording from `begin` to `end`; `updates` are (optimizer, end of its step).

    Of several optimizers the last one ends the step. What follows the last update is device work of the last step or,
    if it is long, an unfinished step. Without an optimizer the whole recording is one step.

    >>> steps_by_updates([("G", 3), ("D", 4), ("G", 8), ("D", 10)], 0, 11)
    [(0, 0, 4), (1, 4, 10)]
    """
    last = max(updates, key=lambda update: update[1], default=("", 0))[0]
    ends = sorted({ended for name, ended in updates if name == last})
    starts = [begin, *ends]
    if not ends or end - ends[-1] > median(ended - start for start, ended in zip(starts, ends, strict=False)) / 2:
        ends.append(end)
    return [(number, start, ended) for number, (start, ended) in enumerate(zip(starts, ends, strict=False))]


def read_steps(sink: Sink) -> None:
    if not sink.wants("steps"):
        return
    steps = sink.connection.execute('SELECT step, start, "end" FROM kineto_steps ORDER BY start').fetchnumpy()
    bounds = StepBounds(steps["step"], steps["start"].astype(np.int64), steps["end"].astype(np.int64))
    compute, communication = _busy(sink)
    sink.add("steps", split_steps(bounds, compute, communication, _intervals(_LOADING, sink)))


@dataclass(frozen=True)
class StepBounds:
    """Start and end of each step, in order of start."""

    step: Times
    start: Times
    end: Times


Intervals = tuple[Times, Times]
"""Starts and ends."""


def split_steps(
    steps: StepBounds, compute: Intervals, communication: Intervals, loading: Intervals
) -> dict[str, Times | None]:
    """The columns of `steps`, with the formulas at the top of this module."""
    begin, end = steps.start, steps.end
    computing = merge_intervals(*compute).covered(begin, end)
    communicating = merge_intervals(*communication).covered(begin, end)
    either = merge_intervals(
        np.concatenate((compute[0], communication[0])), np.concatenate((compute[1], communication[1]))
    )
    busy = either.covered(begin, end)
    overlapped = computing + communicating - busy
    return {
        "step": steps.step,
        "start": begin,
        "end": end,
        "duration": end - begin,
        "data_wait": merge_intervals(*loading).covered(begin, end) if len(loading[0]) else None,
        "computing": computing,
        "communication": communicating,
        "overlapped": overlapped,
        "exposed": communicating - overlapped,
        "free": end - begin - busy,
        "preparing": either.first_inside(begin, end) - begin,
    }


def _busy(sink: Sink) -> tuple[Intervals, Intervals]:
    """Intervals of computing and of communication."""
    [(work,)] = sink.connection.execute("SELECT count(*) FROM kineto_device").fetchall()
    if work:
        device = "SELECT start, start + duration AS end FROM kineto_device WHERE communicates = ?"
        return _intervals(device, sink, [False]), _intervals(device, sink, [True])
    return _intervals(_OPERATORS, sink), _intervals(
        "SELECT start, start + duration AS end FROM kineto_communication", sink
    )


def _intervals(query: str, sink: Sink, parameters: Sequence[object] = ()) -> Intervals:
    columns = sink.connection.execute(query, list(parameters)).fetchnumpy()
    return columns["start"].astype(np.int64), columns["end"].astype(np.int64)
