"""Kernels of one rank in MindInsight trees.

output_timeline_data_{id}.txt        every AI core kernel: name, stream, start ms, duration ms
ascend_timeline_display_{id}.json    if there is no such file, as in msadvisor's trees: operators in the lanes of devices
                                     (AI core) and of process 9000 (AI CPU), µs

Of the timeline's other processes, 10000 is communication, 11000 the host, and 12000 what MindSpore merged of them; its lanes
from 100000 on are steps and scopes. Taking the next sample from the queue is waiting for input, not work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import Sink
from paceline.formats.chrome_trace.trace_events import load_trace
from paceline.formats.mindinsight.operators import OperatorDescription, read_framework, steps_of_trace
from paceline.formats.mindinsight.timeline import TimelineFiles, timeline_offset


@dataclass(frozen=True)
class KernelFiles:
    timeline: Path
    framework: Path | None
    step_trace: Path | None


_QUEUE_OPERATORS = ("InitData", "InitDataSetQueue", "GetNext", "EndOfSequence")
_OPERANDS = 8
_ARGS = {
    "type": "type",
    "full_name": "fullname",
    **{f"input_{number}": f"input_{number}" for number in range(_OPERANDS)},
    "output_0": "output_0",
}
_ROWS = """
    CREATE OR REPLACE TEMP TABLE timeline_rows AS
    SELECT trim(name) AS name, 'AI_CORE' AS core,
           TRY_CAST(trim(stream) AS BIGINT) AS stream,
           (TRY_CAST(trim(start) AS DECIMAL(24, 6)) * 1000000)::BIGINT AS start,
           (TRY_CAST(trim(duration) AS DECIMAL(24, 6)) * 1000000)::BIGINT AS duration,
           NULL::VARCHAR AS type, NULL::VARCHAR AS input_shapes, NULL::VARCHAR AS input_types, NULL::VARCHAR AS output_shapes
    FROM read_csv(?, header = false, skip = 1, delim = ',', quote = '', escape = '', null_padding = true,
                  strict_mode = false, auto_detect = false,
                  columns = {name: 'VARCHAR', stream: 'VARCHAR', start: 'VARCHAR', duration: 'VARCHAR'})
"""


def _operands(field: str) -> str:
    """SQL of the shape or data type of every input, divided by semicolons; null if none is recorded."""
    values = (f"json_extract_string(TRY_CAST(input_{number} AS JSON), '$.{field}')" for number in range(_OPERANDS))
    return f"nullif(replace(concat_ws(';', {', '.join(values)}), 'NUMBER_TYPE_', ''), '')"


_EVENTS = f"""
    CREATE OR REPLACE TEMP TABLE timeline_rows AS
    SELECT coalesce(full_name, name) AS name, if(pid = '9000', 'AI_CPU', 'AI_CORE') AS core,
           TRY_CAST(tid AS BIGINT) AS stream, ts + $offset AS start, dur AS duration,
           type, {_operands("shape")} AS input_shapes, {_operands("data_type")} AS input_types,
           json_extract_string(TRY_CAST(output_0 AS JSON), '$.shape') AS output_shapes
    FROM timeline
    WHERE ph = 'X' AND ts IS NOT NULL AND dur IS NOT NULL AND pid NOT IN ('10000', '11000', '12000')
      AND NOT (pid = '9000' AND $ai_cpu_is_known)
      AND coalesce(TRY_CAST(tid AS BIGINT), 0) < 100000
      AND NOT list_contains($queues, regexp_replace(name, '-op[0-9]+(_[0-9]+)?$', ''))
"""

_KERNELS = r"""
    SELECT kernel.name,
           coalesce(kernel.type, descriptions.type,
                    regexp_replace(regexp_replace(kernel.name, '^.*/', ''), '-op\d+$', '')) AS type,
           core, stream, kernel.start, kernel.duration,
           CASE WHEN kernel.start < step_rows."end" THEN step_rows.step END AS step,
           coalesce(kernel.input_shapes, descriptions.input_shapes) AS input_shapes,
           coalesce(kernel.input_types, descriptions.input_types) AS input_types,
           coalesce(kernel.output_shapes, descriptions.output_shapes) AS output_shapes
    FROM timeline_rows AS kernel
    LEFT JOIN descriptions USING (name)
    ASOF LEFT JOIN step_rows ON kernel.start >= step_rows.start
    WHERE kernel.start IS NOT NULL AND kernel.duration IS NOT NULL
"""


def read_kernels(files: KernelFiles | TimelineFiles, sink: Sink) -> None:
    descriptions = read_framework(files.framework, sink) if isinstance(files, KernelFiles) and files.framework else []
    with staged_kernels(files, sink) as table:
        if table is None:
            return
        sink.connection.register("descriptions", _columns_of(descriptions))
        sink.connection.register("step_rows", _step_columns(files.step_trace, sink))
        try:
            sink.add_query("kernels", _KERNELS)
            _warn_about_damage(files.timeline, sink)
        finally:
            sink.connection.unregister("descriptions")
            sink.connection.unregister("step_rows")


@contextmanager
def staged_kernels(files: KernelFiles | TimelineFiles, sink: Sink) -> Iterator[str | None]:
    """Name of a temporary table of all kernels, on the clock of the steps; None if the timeline cannot be aligned with it."""
    try:
        staged = _stage_rows(files, sink) if isinstance(files, KernelFiles) else _stage_events(files, sink)
        yield "timeline_rows" if staged else None
    finally:
        sink.connection.execute("DROP TABLE IF EXISTS timeline_rows")


def _stage_rows(files: KernelFiles, sink: Sink) -> bool:
    if files.timeline.stat().st_size == 0:
        raise FormatError(message("empty"), file=files.timeline)
    sink.connection.execute(_ROWS, [str(files.timeline)])
    return True


def _stage_events(files: TimelineFiles, sink: Sink) -> bool:
    load_trace(sink.connection, files.timeline, table="timeline", args=_ARGS)
    try:
        offset = timeline_offset(files, sink)
        if offset is not None:
            sink.connection.execute(
                _EVENTS,
                {"offset": offset, "queues": list(_QUEUE_OPERATORS), "ai_cpu_is_known": files.ai_cpu_is_known},
            )
        return offset is not None
    finally:
        sink.connection.execute("DROP TABLE timeline")


def _columns_of(descriptions: Sequence[OperatorDescription]) -> dict[str, np.ndarray[tuple[int], np.dtype[np.object_]]]:
    names = ("name", "type", "input_shapes", "input_types", "output_shapes")
    return {name: np.array([getattr(each, name) for each in descriptions], dtype=object) for name in names}


def _step_columns(step_trace: Path | None, sink: Sink) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    steps = steps_of_trace(step_trace, sink)
    return {
        "step": np.array([step.number for step in steps], dtype=np.int64),
        "start": np.array([step.start for step in steps], dtype=np.int64),
        "end": np.array([step.end for step in steps], dtype=np.int64),
    }


def _warn_about_damage(path: Path, sink: Sink) -> None:
    # fetchall, not fetchone: DuckDB 2 refuses to unregister while a result is open.
    query = "SELECT count(*) FROM timeline_rows WHERE start IS NULL OR duration IS NULL"
    [(lost,)] = sink.connection.execute(query).fetchall()
    if lost:
        sink.warn(message("no_start", n=lost), file=path)
