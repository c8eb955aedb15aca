"""The CSV results of Ascend profilers: columns found by name, µs to ns, "N/A" to null, trailing tabs dropped.

Small files go through the csv module; kernel_details.csv, which can have millions of rows, through DuckDB.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paceline.errors import FormatError
from paceline.formats.reader import Sink

MAX_SMALL = 1 << 30
_KIB, _MIB = 1 << 10, 1 << 20
_KERNELS = {
    "step": ("Step Id", "Step ID"), "name": ("Name", "Op Name"), "type": ("Type", "OP Type"),
    "core": ("Accelerator Core", "Task Type"), "stream": ("Stream ID",),
    "start": ("Start Time(us)", "Task Start Time(us)"),
    "duration": ("Duration(us)", "Task Duration(us)"), "wait": ("Wait Time(us)", "Task Wait Time(us)"),
    "input_shapes": ("Input Shapes",), "input_types": ("Input Data Types",), "output_shapes": ("Output Shapes",),
}  # fmt: skip


def read_op_statistic(path: Path, sink: Sink) -> None:
    rows = list(csv_rows(path, ("OP Type", "Count", "Total Time(us)")))
    sink.add("operators", {
        "level": "type",
        "name": [row["OP Type"] for row in rows], "type": [row["OP Type"] for row in rows],
        "core": [row.get("Core Type") for row in rows], "count": [integer(row["Count"]) for row in rows],
        "time": [nanoseconds(row["Total Time(us)"]) for row in rows],
        "min": [nanoseconds(row.get("Min Time(us)")) for row in rows],
        "max": [nanoseconds(row.get("Max Time(us)")) for row in rows],
    })  # fmt: skip


def read_api_statistic(path: Path, sink: Sink) -> None:
    rows = list(csv_rows(path, ("Level", "API Name", "Time(us)", "Count")))
    sink.add("host_calls", {
        "layer": [row["Level"] for row in rows], "name": [row["API Name"] for row in rows],
        "count": [integer(row["Count"]) for row in rows], "time": [nanoseconds(row["Time(us)"]) for row in rows],
        "min": [nanoseconds(row.get("Min(us)")) for row in rows],
        "max": [nanoseconds(row.get("Max(us)")) for row in rows],
    })  # fmt: skip


def read_l2_cache(path: Path, sink: Sink) -> None:
    """One row per task: as many as kernels, so DuckDB reads it too."""
    header = csv_header(path)
    if missing := [name for name in ("Op Name", "Hit Rate") if name not in header]:
        raise FormatError(f"lacks the column {missing[0]!r}", file=path, line=1)
    numbers = {"stream": "Stream Id", "task": "Task Id"}
    rates = {"hit_rate": "Hit Rate", "victim_rate": "Victim Rate"}
    columns = ['"Op Name" AS name']
    columns += [_cast(source, "BIGINT", name) for name, source in numbers.items() if source in header]
    columns += [_cast(source, "DOUBLE", name) for name, source in rates.items() if source in header]
    sink.add_query("l2_cache", f"SELECT {', '.join(columns)} FROM {_csv_scan(header)}", [str(path)])


def read_data_preprocess(path: Path, sink: Sink) -> None:
    """AI CPU nodes: kernels that ran on the device's CPU."""
    rows = list(csv_rows(path, ("Node", "Total_time(us)")))
    sink.add("kernels", {
        "name": [row["Node"] for row in rows], "type": [row["Node"] for row in rows], "core": "AI_CPU",
        "stream": [integer(row.get("Stream ID")) for row in rows],
        "start": [nanoseconds(row.get("Timestamp(us)")) for row in rows],
        "duration": [nanoseconds(row["Total_time(us)"]) for row in rows],
        "wait": [nanoseconds(row.get("Dispatch_time(us)")) for row in rows],
    })  # fmt: skip


def read_memory(files: Mapping[str, Path], megabyte: int, sink: Sink) -> None:
    """memory_record.csv, npu_module_mem.csv and operator_memory.csv; MB means `megabyte` bytes.

    torch_npu writes MiB; MindSpore divides KiB by 1000, so its "MB" are 1,024,000 bytes.
    """
    if path := files.get("memory_record.csv"):
        _read_memory_samples(path, megabyte, sink)
    if path := files.get("npu_module_mem.csv"):
        _read_module_memory(path, megabyte, sink)
    if path := files.get("operator_memory.csv"):
        _read_operator_memory(path, megabyte, sink)


def read_kernels(path: Path, sink: Sink) -> None:
    """kernel_details.csv (or msprof's op_summary): one row per execution."""
    header = csv_header(path)
    found = {column: next((name for name in names if name in header), None) for column, names in _KERNELS.items()}
    if not (found["name"] and found["duration"]):
        raise FormatError("has no Name or Duration(us) column", file=path)
    picked = ", ".join(_kernel_column(column, source) for column, source in found.items() if source)
    rows = f"SELECT {picked} FROM {_csv_scan(header)}"
    added = sink.add_query("kernels", f"FROM ({rows}) WHERE duration IS NOT NULL", [str(path)])
    # As many rows as lines below the header: none was lost. Only otherwise is it worth reading the file once more.
    if added != _lines(path) - 1:
        lost = sink.connection.execute(f"SELECT count(*) FROM ({rows}) WHERE duration IS NULL", [str(path)]).fetchone()
        if lost and lost[0]:
            sink.warn(f"{lost[0]:,} rows without a readable duration are left out", file=path)


def _lines(path: Path) -> int:
    """Lines of a file, the last one with or without its end."""
    count, last = 0, b""
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            count, last = count + block.count(b"\n"), block
    return count + (not last.endswith(b"\n"))


def csv_header(path: Path) -> list[str]:
    """The column names; unique, as DuckDB wants them."""
    with path.open("rb") as file:
        line = file.readline(1 << 20)
    if not line.strip():
        raise FormatError("is empty", file=path)
    names = next(csv.reader(io.StringIO(_text(line, path))))
    if len(set(names)) != len(names):
        raise FormatError("names a column twice", file=path)
    return [name.strip() for name in names]


def _csv_scan(header: list[str]) -> str:
    """A DuckDB scan of a CSV file as text, tolerant of rows that are cut off."""
    cells = ", ".join("'" + name.replace("'", "''") + "': 'VARCHAR'" for name in header)
    return (
        f"read_csv(?, columns = {{{cells}}}, header = true, auto_detect = false, delim = ',', quote = '\"', "
        "escape = '\"', null_padding = true, strict_mode = false, max_line_size = 16777216)"
    )


def csv_rows(path: Path, needed: Iterable[str]) -> Iterable[dict[str, str]]:
    """Rows as dictionaries; a cut-off last row is left out, a missing column is an error."""
    if path.stat().st_size > MAX_SMALL:
        raise FormatError(f"has {path.stat().st_size:,} bytes, far more than such a file can have; refused", file=path)
    text = _text(path.read_bytes(), path)
    reader = csv.reader(io.StringIO(text))
    header = [name.strip() for name in next(reader, [])]
    if missing := [name for name in needed if name not in header]:
        raise FormatError(
            f"is empty or lacks the column {missing[0]!r}" if not header else f"lacks the column {missing[0]!r}",
            file=path, line=1,
        )  # fmt: skip
    for row in reader:
        if len(row) == len(header):
            yield dict(zip(header, row, strict=True))


def number(text: str | None) -> float | None:
    """A float, null for "", "N/A" and anything that is no number."""
    try:
        return float(text) if text else None
    except ValueError:
        return None


def integer(text: str | None) -> int | None:
    value = number(text)
    return None if value is None or value != value or abs(value) >= 2**63 else round(value)


def nanoseconds(text: str | None) -> int | None:
    """ns from µs, exact to the nanosecond for today's epoch; trailing tabs are common."""
    plain = (text or "").strip()
    whole, _, fraction = plain.partition(".")
    if whole.isdecimal() and (fraction.isdecimal() or not fraction) and len(whole) < 17:
        return int(whole) * 1000 + round(int((fraction + "0000")[:4]) / 10)
    value = number(plain)
    return None if value is None or not abs(value) < 2**53 else round(value * 1000)


def _text(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FormatError("is not UTF-8 text; skipped", file=path, line=line) from error


def _cast(source: str, kind: str, column: str) -> str:
    """Null for what is no number. A bare TRY_CAST of a CSV column becomes the column's type, and then errors."""
    cell = '"' + source.replace('"', '""') + '"'
    return f"TRY_CAST(nullif({cell}, 'N/A') AS {kind}) AS {column}"


def _kernel_column(column: str, source: str) -> str:
    """SQL for one column. Casts skip the tabs behind times; everything that can be left out is: there are millions."""
    cell = '"' + source.replace('"', '""') + '"'
    if column == "start":
        return f"(TRY_CAST({cell} AS DECIMAL(20, 3)) * 1000)::BIGINT AS start"
    if column in ("duration", "wait"):
        return f"TRY_CAST(round(TRY_CAST({cell} AS DOUBLE) * 1000) AS BIGINT) AS {column}"
    if column in ("step", "stream"):
        return _cast(source, "BIGINT", column)
    if column == "core":  # older CANN says HCCL
        return f"if({cell} = 'HCCL', 'COMMUNICATION', {cell}) AS core"
    if column.endswith("shapes"):
        cell = f"replace({cell}, '\"', '')"
    return f"nullif({cell}, 'N/A') AS {column}"


def _read_memory_samples(path: Path, megabyte: int, sink: Sink) -> None:
    rows = list(csv_rows(path, ("Component", "Timestamp(us)", "Total Reserved(MB)")))
    reserved = [_scaled(row["Total Reserved(MB)"], megabyte) for row in rows]
    sink.add("memory", {
        "kind": "sample", "name": [row["Component"] for row in rows],
        "time": [nanoseconds(row["Timestamp(us)"]) for row in rows],
        "allocated": [_scaled(row.get("Total Allocated(MB)"), megabyte) for row in rows],
        "reserved": reserved,
        "active": [_scaled(row.get("Total Active(MB)"), megabyte) for row in rows],
    })  # fmt: skip
    peak = max((size for size in reserved if size is not None), default=None)
    if peak is not None:
        sink.add("ranks_memory", {"peak": peak, "basis": "measured"})


def _read_module_memory(path: Path, megabyte: int, sink: Sink) -> None:
    rows = list(csv_rows(path, ("Component", "Timestamp(us)", "Total Reserved(MB)")))
    sink.add("memory", {
        "kind": "module", "name": [row["Component"] for row in rows],
        "time": [nanoseconds(row["Timestamp(us)"]) for row in rows],
        "reserved": [_scaled(row["Total Reserved(MB)"], megabyte) for row in rows],
    })  # fmt: skip


def _read_operator_memory(path: Path, megabyte: int, sink: Sink) -> None:
    rows = list(csv_rows(path, ("Name", "Size(KB)", "Allocation Time(us)")))
    prefix = "Allocation Total "
    columns: dict[str, Any] = {
        "kind": "operator", "name": [row["Name"] for row in rows],
        "time": [nanoseconds(row["Allocation Time(us)"]) for row in rows],
        "size": [_scaled(row["Size(KB)"], _KIB) for row in rows],
        "lifetime": [nanoseconds(row.get("Duration(us)")) for row in rows],
    }  # fmt: skip
    for what in ("allocated", "reserved", "active"):
        columns[what] = [_scaled(row.get(f"{prefix}{what.title()}(MB)"), megabyte) for row in rows]
    sink.add("memory", columns)


def _scaled(text: str | None, unit: int) -> int | None:
    value = number((text or "").strip())
    return None if value is None or not abs(value) < 2**53 else round(value * unit)
