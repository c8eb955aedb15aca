"""Who launched a piece of device work: the operator, the collective call, the module and the Python frame around its launch.

A launch and what encloses it run on one thread of the host. Nesting decides, not "External id": in many traces that number
repeats the correlation of the launch.
"""

from __future__ import annotations

import numpy as np

from paceline.formats.base import Sink
from paceline.formats.intervals import Times
from paceline.formats.kineto.categories import LOADING
from paceline.formats.kineto.collectives import CALL_COLUMNS
from paceline.formats.kineto.nesting import NOTHING, Spans, innermost

IS_OPERATOR = "cat IN ('cpu_op', 'Operator')"
PARAMETERS = "record_param_comms"
"""An operator that only records what a collective was called with."""
COLLECTIVE_CALLS = ("nccl:", "rccl:", "hccl:", "xccl:", "gloo:", "mpi:", "ucc:", "c10d::", PARAMETERS)
"""How the names of what torch writes around a collective begin."""
OWN_KERNELS = "at::native"
"""Kernels of torch itself: a copy or a sum next to a collective, never the collective."""
OWN_OPERATORS = "aten::"
"""Operators of torch itself: inside a collective's call they prepare or copy its tensors."""

_IS_CALL = " OR ".join(f"starts_with(name, '{start}')" for start in COLLECTIVE_CALLS)
_IS_MARK = f"{_IS_CALL} OR starts_with(name, 'ProfilerStep#') OR starts_with(name, '{LOADING}')"
_ENCLOSING = {
    "operator": IS_OPERATOR,
    "own": f"{IS_OPERATOR} AND starts_with(name, '{OWN_OPERATORS}')",
    "params": f"name = '{PARAMETERS}' AND cat IS DISTINCT FROM 'gpu_user_annotation'",
    "annotation": f"({_IS_CALL}) AND name <> '{PARAMETERS}' AND cat IS DISTINCT FROM 'gpu_user_annotation'",
    "module": "cat = 'python_function' AND starts_with(name, 'nn.Module: ')",
    "range": f"(cat = 'nvtx' OR cat = 'user_annotation' AND NOT ({_IS_MARK}))",
    "frame": "cat = 'python_function' AND NOT starts_with(name, 'nn.Module: ') AND NOT starts_with(name, '<built-in')",
}
"""Column of `kineto_calls` → which spans of the host."""
USERS_FRAME = f"{_ENCLOSING['frame']} AND NOT regexp_matches(name, '^(torch/|torch_npu/|<|threading.py|contextlib.py)')"
"""Python functions of the program, not of torch or of Python itself."""

_AROUND = f"""
    CREATE OR REPLACE TEMP TABLE kineto_around AS
    SELECT rowid AS row, name, ts AS begun, ts + dur AS finished, {CALL_COLUMNS},
           -- [[4096, 1024], [], [1024]] → 4096,1024;;1024
           replace(replace(replace(replace(dims, ' ', ''), '],[', ';'), '[', ''), ']', '') AS shapes,
           replace(replace(regexp_replace(types, '", *"', ';', 'g'), '["', ''), '"]', '') AS shape_types
    FROM trace
    WHERE rowid IN (SELECT unnest([{", ".join(_ENCLOSING)}]) FROM kineto_calls)
"""
"""What was found around launches: a small part of the trace, which joins can hold."""


def stage_calls(sink: Sink) -> None:
    """Create `kineto_calls`: rows around the launch of each piece of work (null: none); `kineto_around`: these rows."""
    connection = sink.connection
    columns = connection.execute(
        "SELECT work, thread, launched FROM kineto_device WHERE launched IS NOT NULL ORDER BY work"
    ).fetchnumpy()
    work, thread, launched = (columns[name].astype(np.int64) for name in ("work", "thread", "launched"))
    found = {name: enclosing(condition, thread, launched, sink) for name, condition in _ENCLOSING.items()}
    connection.register("found_calls", {"work": work, **found})
    rows = ", ".join(f"nullif({name}, {NOTHING}) AS {name}" for name in _ENCLOSING)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE kineto_calls AS SELECT work, {rows} FROM found_calls")
    connection.unregister("found_calls")
    connection.execute(_AROUND)
    _inside_collective_calls_communicate(sink)


def enclosing(condition: str, thread: Times, time: Times, sink: Sink) -> Times:
    """Row of the innermost span under this condition around each moment of a thread, or NOTHING."""
    columns = sink.connection.execute(
        f"""
        SELECT row, (hash(pid, tid) >> 1)::BIGINT AS thread, start, start + duration AS "end"
        FROM kineto_spans WHERE {condition}
        """
    ).fetchnumpy()
    row, *spans = (columns[name].astype(np.int64) for name in ("row", "thread", "start", "end"))
    found = innermost(Spans(*spans), thread, time)
    return np.where(found == NOTHING, NOTHING, np.append(row, NOTHING)[found])


def _inside_collective_calls_communicate(sink: Sink) -> None:
    """What was launched by a collective's call communicates, except by an operator that the call only contains."""
    sink.connection.execute(
        """
        WITH called AS (
            SELECT work FROM kineto_calls AS calls
            LEFT JOIN kineto_around AS own ON calls.own = own.row
            LEFT JOIN kineto_around AS params ON calls.params = params.row
            LEFT JOIN kineto_around AS annotation ON calls.annotation = annotation.row
            WHERE greatest(params.begun, annotation.begun) IS NOT NULL
              AND NOT coalesce(
                  own.begun >= greatest(params.begun, annotation.begun)
                      OR own.finished < least(params.finished, annotation.finished),
                  false
              )
        )
        UPDATE kineto_device AS device SET communicates = true
        FROM called
        WHERE device.work = called.work AND kind = 'kernel' AND NOT contains(device.name, ?)
        """,
        [OWN_KERNELS],
    )
