"""What MindSpore's profiler leaves in FRAMEWORK/ when the operators ran on a CPU.

`cpu_op_execute_timestamp_{rank}.txt` keeps start times in exact nanoseconds, where trace_view.json rounds them by
some 40 ns; durations have six significant digits. Operators that communicate appear as kernels and as collectives.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from paceline.errors import FormatError
from paceline.formats.collective_names import op_of
from paceline.formats.reader import Section, Sink
from paceline.storage.tree import File

MAX_BYTES = 1 << 30

_COMMUNICATION = re.compile(
    r"(InnerComm|DistComm|Host|Collective)?"
    r"(All_?Reduce|All_?Gather\w*|Reduce_?Scatter\w*|Reduce|Broadcast|All_?[tT]o_?All\w*|NeighborExchange\w*"
    r"|I?[sS]end|Receive|I?[rR]ecv|BatchI[sS]endI[rR]ecv|Barrier|CollectiveScatter|CollectiveGather|Scatter|Gather)"
)
_TENSOR_OPERATORS = frozenset({"Reduce", "Scatter", "Gather"})
"""Without a prefix these names work on tensors of one rank (tensor "Gather" is an index lookup)."""


def cpu_sections(files: Mapping[str, File], rank: int) -> list[Section]:
    """The CPU files of one rank's FRAMEWORK directory; files of other ranks are passed over."""
    known = (
        (f"cpu_op_execute_timestamp_{rank}.txt", frozenset({"kernels", "collectives"}), _read_executions),
        (f"cpu_op_type_info_{rank}.csv", frozenset({"operators"}), _read_types),
        (f"cpu_op_detail_info_{rank}.csv", frozenset({"operators"}), _read_details),
        (f"cpu_ms_memory_record_{rank}.txt", frozenset({"memory"}), _read_memory),
    )
    return [
        Section(name.rpartition("_")[0], tables, (files[name],), partial(read, files[name]))
        for name, tables, read in known
        if name in files
    ]


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
    SELECT name, type, start, duration,
           CASE WHEN list_contains(?, type) THEN 'COMMUNICATION' ELSE 'HOST_CPU' END AS core
    FROM cpu_executions
    WHERE start IS NOT NULL AND duration >= 0
"""

_COLLECTIVES = """
    WITH ops AS (
        SELECT unnest(?) AS type, unnest(?) AS op
    )
    SELECT name, op, start, duration, row_number() OVER (PARTITION BY op ORDER BY start, name) - 1 AS sequence
    FROM cpu_executions JOIN ops USING (type)
    WHERE start IS NOT NULL AND duration >= 0
"""


def _read_executions(file: File, sink: Sink) -> None:
    """Lines `full_name;HostCpuOps;start_ns,duration_ms,thread start_ns,…`.

    The file does not name communicators, so collectives are counted per operation in the order they started: every
    rank has to start them in the same order.
    """
    _bounded(file)
    sink.connection.execute(_STAGE_EXECUTIONS, [str(file.path)])
    types = [str(row[0]) for row in sink.connection.execute("SELECT DISTINCT type FROM cpu_executions").fetchall()]
    talking = sorted(filter(communicates, types))
    sink.add_query("kernels", _KERNELS, [talking])
    if talking:
        sink.add_query("collectives", _COLLECTIVES, [talking, [op_of(name) for name in talking]])
    _warn_about_damage(file, sink)
    sink.connection.execute("DROP TABLE cpu_executions")


def _warn_about_damage(file: File, sink: Sink) -> None:
    [(damaged,)] = sink.connection.execute(
        "SELECT count(*) FROM cpu_executions WHERE start IS NULL OR duration IS NULL OR duration < 0"
    ).fetchall()
    if damaged:
        sink.warn(f"{damaged} executions were not understood and left out", file=file.path)


# -- sums per operator ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Columns:
    """What a summary file calls its columns, without "(ms)"."""

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
            raise FormatError(f"not a sum over an operator ({error})", file=file.path, line=rows.line_num) from error
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
        raise FormatError(f"is larger than {MAX_BYTES >> 20} MiB; refused", file=file.path)
