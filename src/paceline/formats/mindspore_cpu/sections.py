"""What MindSpore's profiler writes to FRAMEWORK/ for operators that ran on a CPU.

`cpu_op_execute_timestamp_{rank}.txt` has exact start times in nanoseconds (trace_view.json rounds them by about 40 ns);
durations have six significant digits. Communication operators become kernels and collectives. MindSpore marks no steps
here; recordings of Paceline do, as ProfilerStep#N in trace_view.json, and their steps are split.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from paceline.core.collective_names import op_of
from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import RecordingSection, Sink
from paceline.formats.chrome_trace.step_marks import StepSpan, marked_spans
from paceline.formats.intervals import Times, merge_intervals
from paceline.storage.file_tree import File

MAX_BYTES = 1 << 30

_COMMUNICATION = re.compile(
    r"(InnerComm|DistComm|Host|Collective)?"
    r"(All_?Reduce|All_?Gather\w*|Reduce_?Scatter\w*|Reduce|Broadcast|All_?[tT]o_?All\w*|NeighborExchange\w*"
    r"|I?[sS]end|Receive|I?[rR]ecv|BatchI[sS]endI[rR]ecv|Barrier|CollectiveScatter|CollectiveGather|Scatter|Gather)"
)
_TENSOR_OPERATORS = frozenset({"Reduce", "Scatter", "Gather"})
"""Without a prefix these are operators on tensors of one rank ("Gather" is an index lookup)."""


def cpu_sections(files: Mapping[str, File], rank: int) -> list[RecordingSection]:
    """Sections of the CPU files of one rank; files of other ranks are ignored."""
    known = (
        (f"cpu_op_type_info_{rank}.csv", frozenset({"operators"}), _read_types),
        (f"cpu_op_detail_info_{rank}.csv", frozenset({"operators"}), _read_details),
        (f"cpu_ms_memory_record_{rank}.txt", frozenset({"memory"}), _read_memory),
    )
    sections = [
        RecordingSection(name.rpartition("_")[0], tables, (files[name],), partial(read, files[name]))
        for name, tables, read in known
        if name in files
    ]
    if executions := files.get(f"cpu_op_execute_timestamp_{rank}.txt"):
        trace = files.get("trace_view.json")
        read = partial(_read_executions, executions, trace)
        tables = frozenset({"kernels", "collectives"} | ({"steps"} if _splits_steps(files) else set()))
        sections.append(
            RecordingSection("cpu_op_execute_timestamp", tables, (executions, *([trace] if trace else [])), read)
        )
    return sections


def _splits_steps(files: Mapping[str, File]) -> bool:
    """Whether no other file records how steps were spent."""
    return "trace_view.json" in files and "step_trace_time.csv" not in files


def supplies_steps(files: Mapping[str, File], rank: int) -> bool:
    """Whether `cpu_sections` supplies the steps of this profile."""
    return f"cpu_op_execute_timestamp_{rank}.txt" in files and _splits_steps(files)


def communicates(operator_type: str) -> bool:
    """Whether an operator type is a MindSpore communication primitive.

    >>> [communicates(name) for name in ("AllReduce", "InnerCommIsend", "Gather", "ReduceSum", "BroadcastTo")]
    [True, True, False, False, False]
    """
    return operator_type not in _TENSOR_OPERATORS and bool(_COMMUNICATION.fullmatch(operator_type))


# -- executions -------------------------------------------------------------------------------------------------------

_STAGE_EXECUTIONS = """
    CREATE OR REPLACE TEMP TABLE cpu_executions AS
    WITH lines AS (
        SELECT unnest(string_split(content, chr(10))) AS line FROM read_text(?)
    ), operators AS (
        SELECT split_part(line, ';', 1) AS name,
               unnest(string_split(trim(split_part(line, ';', 3), E' \\r\\t'), ' ')) AS run
        FROM lines
        WHERE trim(line, E' \\r\\t') <> ''
    )
    SELECT name, regexp_replace(regexp_replace(name, '^.*/', ''), '-op[0-9]+$', '') AS type,
           TRY_CAST(split_part(run, ',', 1) AS BIGINT) AS start,
           TRY_CAST(round(TRY_CAST(split_part(run, ',', 2) AS DOUBLE) * 1e6) AS BIGINT) AS duration
    FROM operators
"""

_KERNELS = """
    SELECT name, type, cpu_steps.step, cpu_executions.start, duration,
           CASE WHEN list_contains(?, type) THEN 'COMMUNICATION' ELSE 'HOST_CPU' END AS core
    FROM cpu_executions
    LEFT JOIN cpu_steps ON cpu_executions.start >= cpu_steps.start AND cpu_executions.start < cpu_steps.end
    WHERE cpu_executions.start IS NOT NULL AND duration >= 0
"""

_COLLECTIVES = """
    WITH ops AS (
        SELECT unnest(?) AS type, unnest(?) AS op
    )
    SELECT name, op, cpu_steps.step, cpu_executions.start, duration,
           row_number() OVER (PARTITION BY op ORDER BY cpu_executions.start, name) - 1 AS sequence
    FROM cpu_executions JOIN ops USING (type)
    LEFT JOIN cpu_steps ON cpu_executions.start >= cpu_steps.start AND cpu_executions.start < cpu_steps.end
    WHERE cpu_executions.start IS NOT NULL AND duration >= 0
"""


def _read_executions(file: File, trace: File | None, sink: Sink) -> None:
    """Lines `full_name;HostCpuOps;start_ns,duration_ms,thread start_ns,…`.

    The file has no communicators: collectives are counted per operation in order of start, which is the same on all
    ranks.
    """
    _bounded(file)
    sink.connection.execute(_STAGE_EXECUTIONS, [str(file.path)])
    spans = marked_spans(trace.path).steps if trace and trace.size else {}
    _stage_steps(spans, sink)
    types = [str(row[0]) for row in sink.connection.execute("SELECT DISTINCT type FROM cpu_executions").fetchall()]
    communicating = sorted(filter(communicates, types))
    sink.add_query("kernels", _KERNELS, [communicating])
    if communicating:
        sink.add_query("collectives", _COLLECTIVES, [communicating, [op_of(name) for name in communicating]])
    if spans and sink.wants("steps"):
        _split_steps(spans, communicating, sink)
    _warn_about_damage(file, sink)
    sink.connection.execute("DROP TABLE cpu_executions")
    sink.connection.execute("DROP TABLE cpu_steps")


def _stage_steps(spans: Mapping[int, StepSpan], sink: Sink) -> None:
    columns = [list(spans), [span.start for span in spans.values()], [span.end for span in spans.values()]]
    sink.connection.execute(
        """
        CREATE OR REPLACE TEMP TABLE cpu_steps AS
        SELECT unnest(?::BIGINT[]) AS step, unnest(?::BIGINT[]) AS start, unnest(?::BIGINT[]) AS end
        """,
        columns,
    )


def _split_steps(spans: Mapping[int, StepSpan], communicating: list[str], sink: Sink) -> None:
    """computing and communication are unions of operators, clipped to the step; free is what neither covers."""
    begin = np.array([span.start for span in spans.values()], dtype=np.int64)
    end = np.array([span.end for span in spans.values()], dtype=np.int64)
    work, transfers = _executed(communicating, sink, yes=False), _executed(communicating, sink, yes=True)
    computing, communication = (
        merge_intervals(*work).covered(begin, end),
        merge_intervals(*transfers).covered(begin, end),
    )
    busy = merge_intervals(np.concatenate((work[0], transfers[0])), np.concatenate((work[1], transfers[1]))).covered(
        begin, end
    )
    overlapped = computing + communication - busy
    sink.add(
        "steps",
        {
            "step": list(spans),
            "start": begin,
            "end": end,
            "duration": end - begin,
            "computing": computing,
            "communication": communication,
            "overlapped": overlapped,
            "exposed": communication - overlapped,
            "free": end - begin - busy,
        },
    )


def _executed(communicating: list[str], sink: Sink, *, yes: bool) -> tuple[Times, Times]:
    columns = sink.connection.execute(
        """
        SELECT start, start + duration AS end FROM cpu_executions
        WHERE start IS NOT NULL AND duration >= 0 AND list_contains(?, type) = ?
        """,
        [communicating, yes],
    ).fetchnumpy()
    return columns["start"].astype(np.int64), columns["end"].astype(np.int64)


def _warn_about_damage(file: File, sink: Sink) -> None:
    [(damaged,)] = sink.connection.execute(
        "SELECT count(*) FROM cpu_executions WHERE start IS NULL OR duration IS NULL OR duration < 0"
    ).fetchall()
    if damaged:
        sink.warn(message("bad_executions", n=damaged), file=file.path)


# -- sums per operator ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Columns:
    """Column names of a summary file, without "(ms)"."""

    name: str
    count: str
    time: str


def _read_types(file: File, sink: Sink) -> None:
    _read_sums(file, "type", _Columns("op_type", "type_occurrences", "total_compute_time"), sink)


def _read_details(file: File, sink: Sink) -> None:
    _read_sums(file, "name", _Columns("full_op_name", "op_occurrences", "op_total_time"), sink)


def _read_sums(file: File, level: str, columns: _Columns, sink: Sink) -> None:
    rows = csv.DictReader(io.StringIO(_text(file)))
    sums = []
    for row in rows:
        plain = {(name or "").partition("(")[0].strip(): value for name, value in row.items()}
        try:
            time = round(float(plain[columns.time]) * 1e6)
            sums.append((plain[columns.name], plain["op_type"], int(plain[columns.count]), time))
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise FormatError(message("not_sums", error=error), file=file.path, line=rows.line_num) from error
    if sums:
        names, types, counts, times = map(list, zip(*sums, strict=True))
        cores = ["COMMUNICATION" if communicates(kind) else "HOST_CPU" for kind in types]
        sink.add(
            "operators", {"level": level, "name": names, "type": types, "core": cores, "count": counts, "time": times}
        )


# -- memory -----------------------------------------------------------------------------------------------------------


def _read_memory(file: File, sink: Sink) -> None:
    """`Timestamp(ns),Total Allocated(Byte),Total Reserved(Byte),Total Active(Byte)`."""
    _bounded(file)
    sink.add_query(
        "memory",
        """
        SELECT 'sample' AS kind, 'MindSpore' AS name, "Timestamp(ns)" AS time, "Total Allocated(Byte)" AS allocated,
               "Total Reserved(Byte)" AS reserved, "Total Active(Byte)" AS active
        FROM read_csv(?, header = true, delim = ',', auto_detect = false, columns = {
            'Timestamp(ns)': 'BIGINT', 'Total Allocated(Byte)': 'BIGINT', 'Total Reserved(Byte)': 'BIGINT',
            'Total Active(Byte)': 'BIGINT'})
        """,
        [str(file.path)],
    )


def _text(file: File) -> str:
    _bounded(file)
    return file.path.read_text(encoding="utf-8-sig")


def _bounded(file: File) -> None:
    if file.size > MAX_BYTES:
        raise FormatError(message("larger_refused", size=f"{MAX_BYTES >> 20} MiB"), file=file.path)
