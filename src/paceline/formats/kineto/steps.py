"""Steps of a torch trace, from its ProfilerStep#N annotations, and how each was spent.

Without calls of the profiler's step() there are no such annotations: then a step ends where the optimizer's step ends,
which torch always records; without an optimizer steps are what the sequence of launches repeats (repeated_program.py), and a
warning tells so. Steps are those of the device (device_steps.py).

    computing      union of the device's work except communication
    communication  union of the communication kernels
    overlapped     |computing ∩ communication|
    exposed        communication − overlapped
    free           duration − |computing ∪ communication|
    data_wait      union of the DataLoader's __next__ while the device does nothing, if it was recorded

all of the step's own work, clipped to the step. In a trace without device work, operators compute and the backend's threads
communicate. The time before a step's first device work is not called input wait: CUDA starts, memory is allocated, Python runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from paceline.core.message import Message, message
from paceline.formats.base import Sink
from paceline.formats.intervals import Times, merge_intervals, without
from paceline.formats.kineto.categories import DEVICE_CATEGORIES, IS_RUNTIME, LOADING
from paceline.formats.kineto.device_steps import (
    DEVICE_FACTOR,
    UNKNOWN,
    DeviceSteps,
    DeviceWork,
    StepBounds,
    device_steps,
    steps_of_device,
)
from paceline.formats.repeated_program import repeated_program

_STEPS = """
    CREATE OR REPLACE TEMP TABLE kineto_steps AS
    WITH annotated AS (
        SELECT TRY_CAST(substr(name, 14) AS BIGINT) AS step, start, start + duration AS end
        FROM kineto_spans
        WHERE starts_with(name, 'ProfilerStep#') AND (cat IS NOT DISTINCT FROM 'gpu_user_annotation') = ?
    )
    SELECT step, min(start) AS start, max("end") AS end FROM annotated WHERE step IS NOT NULL GROUP BY step
"""
_ON_HOST, _ON_DEVICE = False, True

_RECORDED = f"""
    SELECT min(start), max(start + duration)
    FROM kineto_spans
    WHERE cat IS DISTINCT FROM 'Trace' AND NOT (? AND cat IN ({DEVICE_CATEGORIES}))
"""

_DEVICE_WORK = f"""
    SELECT start, duration, coalesce(device, 0) * {DEVICE_FACTOR} + coalesce(stream, -1) AS stream,
           coalesce(launched, ?) AS launched, communicates
    FROM kineto_device ORDER BY work
"""
"""`stream` as stream_key of device_steps.py."""

_UPDATES = """
    SELECT name, start + duration
    FROM kineto_spans
    WHERE starts_with(name, 'Optimizer.step#') AND cat IS DISTINCT FROM 'gpu_user_annotation'
"""

_LAUNCHED = """
    SELECT dense_rank() OVER (ORDER BY name) - 1 AS name, coalesce(launched, start) AS time
    FROM kineto_device WHERE name IS NOT NULL ORDER BY time, start, work
"""
_CALLED = """
    SELECT dense_rank() OVER (ORDER BY name) - 1 AS name, start AS time
    FROM kineto_spans
    WHERE cat IN ('cpu_op', 'Operator') AND name IS NOT NULL
      AND (pid, tid) = (
          SELECT (pid, tid) FROM kineto_spans WHERE cat IN ('cpu_op', 'Operator')
          GROUP BY pid, tid ORDER BY count(*) DESC, min(start) LIMIT 1
      )
    ORDER BY time, duration DESC
"""
"""Operators of the busiest thread."""

_OPERATORS = """
    SELECT (hash(pid, tid) >> 1)::BIGINT AS thread, start, start + duration AS end,
           regexp_matches(name, '^(c10d::|_c10d_functional::|record_param_comms$|[a-z]+:[^:])') AS communicates,
           regexp_matches(name, '^(c10d::|record_param_comms$)') AND NOT contains(name, 'barrier') AS begins,
           starts_with(name, 'aten::') AS own
    FROM kineto_spans
    WHERE (cat IN ('cpu_op', 'Operator') AND contains(name, ':') AND NOT starts_with(name, 'autograd::engine::'))
       OR (cat = 'user_annotation' AND regexp_matches(name, '^[a-z]+:[^:]') AND NOT regexp_matches(name, ':(send|recv)'))
"""
"""Operators, not the nodes of autograd around them: those also wait, for hooks that sum gradients for example.

What the backend marks is work of its own threads; only messages are marked on the thread that goes on computing meanwhile.
A call that only begins a collective returns at once: inside one of torch's own operators it belongs to that operator.
"""


_LOADING = f"""
    SELECT start, start + duration AS end
    FROM kineto_spans
    WHERE starts_with(name, '{LOADING}') AND cat IS DISTINCT FROM 'gpu_user_annotation'
"""


def stage_steps(sink: Sink) -> DeviceSteps:
    """Create the tables `kineto_steps` (step, start, end) and `kineto_work` (work, step): the device work of each step."""
    connection = sink.connection
    connection.execute(_STEPS, [_ON_HOST])
    work = _device_work(sink)
    if not _has_steps(sink):
        connection.execute(_STEPS, [_ON_DEVICE])
        if _has_steps(sink):
            return _steps_of_device(work, sink)
    # A host that ran ahead leaves a device that still works long after the last update.
    [(begin, end)] = connection.execute(_RECORDED, [work.has_launches]).fetchall()
    if begin is not None and not _has_steps(sink):
        updates = connection.execute(_UPDATES).fetchall()
        steps_found = (None if updates else _repeated_steps(begin, end, sink)) or steps_by_updates(updates, begin, end)
        connection.executemany("INSERT INTO kineto_steps VALUES (?, ?, ?)", steps_found)
    found = device_steps(_staged_bounds(sink), work)
    _store(found, sink)
    return found


def _has_steps(sink: Sink) -> bool:
    return bool(sink.connection.execute("FROM kineto_steps LIMIT 1").fetchall())


def _staged_bounds(sink: Sink) -> StepBounds:
    steps = sink.connection.execute(
        'SELECT step, start, "end" FROM kineto_steps ORDER BY start, "end", step'
    ).fetchnumpy()
    return StepBounds(steps["step"], steps["start"].astype(np.int64), steps["end"].astype(np.int64))


def _steps_of_device(work: DeviceWork, sink: Sink) -> DeviceSteps:
    """Steps that only the device's tracks mark (traces without the host): each lasts until the next one begins."""
    bounds = _staged_bounds(sink)
    end = np.append(bounds.start[1:], bounds.end[-1:])
    found = steps_of_device(StepBounds(bounds.step, bounds.start, end), work)
    _store(found, sink)
    return found


def _repeated_steps(begin: int, end: int, sink: Sink) -> list[tuple[int, int, int]] | None:
    """(step, start, end) as the program repeats itself: by what it launched, in a trace without launches by its operators."""
    query = _LAUNCHED if sink.connection.execute("FROM kineto_device LIMIT 1").fetchall() else _CALLED
    columns = sink.connection.execute(query).fetchnumpy()
    times = columns["time"].astype(np.int64)
    found = repeated_program(columns["name"].astype(np.int64), times) if len(times) else None
    if found is None:
        return None
    bounds = found.bounds
    starts = np.append(times, end)[bounds]
    if bounds[0] == 0:
        starts[0] = begin
    count = len(bounds) - 1
    sink.warn(message("inferred_steps", n=count))
    return [(at, int(starts[at]), int(starts[at + 1])) for at in range(count)]


def _device_work(sink: Sink) -> DeviceWork:
    columns = sink.connection.execute(_DEVICE_WORK, [UNKNOWN]).fetchnumpy()
    start, duration, stream, launched = (
        columns[name].astype(np.int64) for name in ("start", "duration", "stream", "launched")
    )
    return DeviceWork(start, start + duration, stream, launched, columns["communicates"].astype(np.bool_))


def _store(found: DeviceSteps, sink: Sink) -> None:
    """The query reads the arrays by their names."""
    step, start, end = found.bounds.step, found.bounds.start, found.bounds.end
    numbers = np.append(found.bounds.step, -1)[found.place]
    work = np.flatnonzero(found.place >= 0)
    numbers = numbers[work]
    connection = sink.connection
    connection.register("found_steps", {"step": step, "start": start, "end": end})
    connection.register("found_work", {"work": work, "step": numbers})
    connection.execute("CREATE OR REPLACE TEMP TABLE kineto_steps AS FROM found_steps")
    connection.execute("CREATE OR REPLACE TEMP TABLE kineto_work AS FROM found_work")
    connection.unregister("found_steps")
    connection.unregister("found_work")


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


def read_steps(found: DeviceSteps, sink: Sink, *, has_devices: bool) -> None:
    if not sink.wants("steps"):
        return
    work = _device_work(sink)
    if len(work.start):
        sink.add("steps", split_steps(found, work, _intervals(_LOADING, sink)))
    elif reason := _device_was_not_recorded(has_devices, sink):
        sink.warn(message("no_device_told", why=reason))
        sink.add("steps", _host_spans(found.bounds, sink))
    else:
        sink.add("steps", _split_host_steps(found.bounds, sink))


def busy_times(sink: Sink) -> Intervals:
    """When the device worked."""
    work = _device_work(sink)
    return work.start, work.end


Intervals = tuple[Times, Times]
"""Starts and ends."""


def split_steps(steps: DeviceSteps, work: DeviceWork, loading: Intervals) -> dict[str, Times | None]:
    """The columns of `steps`, with the formulas at the top of this module."""
    busy = work.start, work.end
    own = _clipped(steps, work) if steps.by_launch else busy
    compute, communication = ((own[0][rows], own[1][rows]) for rows in (~work.communicates, work.communicates))
    columns = _split(steps.bounds, compute, communication)
    return columns | {"data_wait": _uncovered(loading, busy, steps.bounds) if len(loading[0]) else None}


def _clipped(steps: DeviceSteps, work: DeviceWork) -> Intervals:
    """The work of each step inside its window; empty outside of all steps."""
    if not len(steps.bounds):
        return work.start, work.start
    inside = steps.place >= 0
    start = np.maximum(work.start, steps.bounds.start[steps.place])
    end = np.minimum(work.end, steps.bounds.end[steps.place])
    return start, np.where(inside, end, start)


def _split(bounds: StepBounds, compute: Intervals, communication: Intervals) -> dict[str, Times | None]:
    begin, end = bounds.start, bounds.end
    computing = merge_intervals(*compute).covered(begin, end)
    communicating = merge_intervals(*communication).covered(begin, end)
    busy = merge_intervals(*_both(compute, communication)).covered(begin, end)
    overlapped = computing + communicating - busy
    return {
        "step": bounds.step,
        "start": begin,
        "end": end,
        "duration": end - begin,
        "computing": computing,
        "communication": communicating,
        "overlapped": overlapped,
        "exposed": communicating - overlapped,
        "free": end - begin - busy,
    }


def _uncovered(loading: Intervals, busy: Intervals, bounds: StepBounds) -> Times:
    """Loading while the device had nothing to do: input that is loaded behind the device's work costs nothing."""
    either = merge_intervals(*_both(loading, busy)).covered(bounds.start, bounds.end)
    uncovered: Times = either - merge_intervals(*busy).covered(bounds.start, bounds.end)
    return uncovered


def _both(some: Intervals, others: Intervals) -> Intervals:
    return np.concatenate((some[0], others[0])), np.concatenate((some[1], others[1]))


def _split_host_steps(bounds: StepBounds, sink: Sink) -> dict[str, Times | None]:
    """Without device work: operators compute, the backend's threads communicate."""
    loading = _intervals(_LOADING, sink)
    communication = "SELECT start, start + duration AS end FROM kineto_communication"
    columns = _split(bounds, _computing_on_host(sink), _intervals(communication, sink))
    waited = merge_intervals(*loading).covered(bounds.start, bounds.end) if len(loading[0]) else None
    return columns | {"data_wait": waited}


def _computing_on_host(sink: Sink) -> Intervals:
    """Operators less the calls inside them that communicate or wait, thread by thread: any thread may do both."""
    columns = sink.connection.execute(_OPERATORS).fetchnumpy()
    thread, start, end = (columns[name].astype(np.int64) for name in ("thread", "start", "end"))
    communicates, begins, own = (columns[name].astype(np.bool_) for name in ("communicates", "begins", "own"))
    found = [(start[:0], start[:0])]
    for number in np.unique(thread):
        rows = thread == number
        computes, waits = rows & ~communicates, rows & communicates
        inside = _is_inside(start, start[rows & own], end[rows & own])
        computing = merge_intervals(start[computes], end[computes])
        waits &= ~(begins & inside)
        waiting = merge_intervals(start[waits], end[waits])
        found.append(without(computing, waiting))
    return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])


def _is_inside(times: Times, start: Times, end: Times) -> NDArray[np.bool_]:
    """Whether each moment lies inside one of the spans, not at its begin."""
    spans = merge_intervals(start, end)
    inside: NDArray[np.bool_] = spans.covered(times - 1, times + 1) > 1
    return inside


def _host_spans(bounds: StepBounds, sink: Sink) -> dict[str, Times | None]:
    """How long the steps were, and no more."""
    columns = _split_host_steps(bounds, sink)
    return {name: columns[name] for name in ("step", "start", "end", "duration", "data_wait")}


def _device_was_not_recorded(has_devices: bool, sink: Sink) -> Message | None:
    """Why a trace without device work says nothing about a device; None if there was none to record."""
    [(unknown, runtime, annotated, operators)] = sink.connection.execute(
        f"""
        SELECT any_value(cat) FILTER (suffix(cat, '_events')), count(*) FILTER ({IS_RUNTIME}),
               count(*) FILTER (regexp_matches(name, '^(nccl|rccl|hccl|xccl):')),
               count(*) FILTER (cat IN ('cpu_op', 'Operator'))
        FROM kineto_spans
        """
    ).fetchall()
    if unknown:
        return message("unknown_device", name=unknown)
    if runtime:
        return message("runtime_only", n=runtime)
    return message("host_only") if annotated or has_devices or not operators else None


def _intervals(query: str, sink: Sink, parameters: Sequence[object] = ()) -> Intervals:
    columns = sink.connection.execute(query, list(parameters)).fetchnumpy()
    return columns["start"].astype(np.int64), columns["end"].astype(np.int64)
