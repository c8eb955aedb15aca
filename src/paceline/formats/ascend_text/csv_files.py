"""CSV results of Ascend profilers: columns found by name, µs to ns, "N/A" to null, trailing tabs ignored.

Small files are read with the csv module; files with millions of rows (kernel_details.csv) with DuckDB.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.core.errors import FormatError
from paceline.core.message import listed, message
from paceline.formats.base import Sink
from paceline.formats.csv_files import csv_header, csv_rows, csv_scan
from paceline.formats.units import integer, ns_from_us, number

_KIB = 1 << 10
_KERNELS = {
    "step": ("Step Id", "Step ID"),
    "name": ("Name", "Op Name"),
    "type": ("Type", "OP Type"),
    "core": ("Accelerator Core", "Task Type"),
    "stream": ("Stream ID",),
    "start": ("Start Time(us)", "Task Start Time(us)"),
    "duration": ("Duration(us)", "Task Duration(us)"),
    "wait": ("Wait Time(us)", "Task Wait Time(us)"),
    "input_shapes": ("Input Shapes",),
    "input_types": ("Input Data Types",),
    "output_shapes": ("Output Shapes",),
}


def read_op_statistic(path: Path, sink: Sink) -> None:
    rows = list(csv_rows(path, ("OP Type", "Count", "Total Time(us)")))
    sink.add(
        "operators",
        {
            "level": "type",
            "name": [row["OP Type"] for row in rows],
            "type": [row["OP Type"] for row in rows],
            "core": [row.get("Core Type") for row in rows],
            "count": [integer(row["Count"]) for row in rows],
            "time": [ns_from_us(row["Total Time(us)"]) for row in rows],
            "min": [ns_from_us(row.get("Min Time(us)")) for row in rows],
            "max": [ns_from_us(row.get("Max Time(us)")) for row in rows],
        },
    )


def read_api_statistic(path: Path, sink: Sink) -> None:
    rows = list(csv_rows(path, ("Level", "API Name", "Time(us)", "Count")))
    sink.add(
        "host_calls",
        {
            "layer": [row["Level"] for row in rows],
            "name": [row["API Name"] for row in rows],
            "count": [integer(row["Count"]) for row in rows],
            "time": [ns_from_us(row["Time(us)"]) for row in rows],
            "min": [ns_from_us(row.get("Min(us)")) for row in rows],
            "max": [ns_from_us(row.get("Max(us)")) for row in rows],
        },
    )


def read_l2_cache(path: Path, sink: Sink) -> None:
    """One row per task, as many as kernels: read with DuckDB."""
    header = csv_header(path)
    if missing := [name for name in ("Op Name", "Hit Rate") if name not in header]:
        raise FormatError(message("lacks_column", name=repr(missing[0])), file=path, line=1)
    numbers = {"stream": "Stream Id", "task": "Task Id"}
    rates = {"hit_rate": "Hit Rate", "victim_rate": "Victim Rate"}
    columns = ['"Op Name" AS name']
    columns += [_cast(source, "BIGINT", name) for name, source in numbers.items() if source in header]
    columns += [_cast(source, "DOUBLE", name) for name, source in rates.items() if source in header]
    sink.add_query("l2_cache", f"SELECT {', '.join(columns)} FROM {csv_scan(header)}", [str(path)])


def read_data_preprocess(path: Path, sink: Sink) -> None:
    """AI CPU nodes: kernels on the device's CPU."""
    rows = list(csv_rows(path, ("Node", "Total_time(us)")))
    sink.add(
        "kernels",
        {
            "name": [row["Node"] for row in rows],
            "type": [row["Node"] for row in rows],
            "core": "AI_CPU",
            "stream": [integer(row.get("Stream ID")) for row in rows],
            "start": [ns_from_us(row.get("Timestamp(us)")) for row in rows],
            "duration": [ns_from_us(row["Total_time(us)"]) for row in rows],
            "wait": [ns_from_us(row.get("Dispatch_time(us)")) for row in rows],
        },
    )


def read_memory(files: Mapping[str, Path], megabyte: int, sink: Sink) -> None:
    """memory_record.csv, npu_module_mem.csv and operator_memory.csv; one MB is `megabyte` bytes.

    torch_npu writes MiB; MindSpore divides KiB by 1000, so that its "MB" are 1,024,000 bytes.
    """
    devices = {}
    for name, read in _MEMORY_FILES.items():
        if path := files.get(name):
            rows = read(path, megabyte, sink)
            devices[name] = {row.get("Device Type") or row.get("Device") or "N/A" for row in rows} - {"N/A"}
    known = {name: found for name, found in devices.items() if found}
    if known and not set.intersection(*known.values()):
        named = listed([message("in_file", what=min(found), name=name) for name, found in known.items()])
        sink.warn(message("other_devices", names=named), file=files[min(known)])


def read_kernels(path: Path, sink: Sink) -> None:
    """kernel_details.csv (or msprof's op_summary): one row per execution."""
    header = csv_header(path)
    found = {column: next((name for name in names if name in header), None) for column, names in _KERNELS.items()}
    if not (found["name"] and found["duration"]):
        raise FormatError(message("no_name"), file=path)
    picked = ", ".join(_kernel_column(column, source) for column, source in found.items() if source)
    rows = f"SELECT {picked} FROM {csv_scan(header)}"
    added = sink.add_query("kernels", f"FROM ({rows}) WHERE duration IS NOT NULL", [str(path)])
    # If there are as many rows as lines below the header, none was lost; otherwise count the lost ones.
    if added != _lines(path) - 1:
        count = f"SELECT count(*) FROM ({rows}) WHERE duration IS NULL"
        lost = sink.connection.execute(count, [str(path)]).fetchall()[0][0]
        if lost:
            sink.warn(message("no_duration", n=lost), file=path)


def _lines(path: Path) -> int:
    """Number of lines; the last one may lack its line end."""
    count, last = 0, b""
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            count, last = count + block.count(b"\n"), block
    return count + (not last.endswith(b"\n"))


def _cast(source: str, kind: str, column: str) -> str:
    """Null for what is not a number. DuckDB turns a bare TRY_CAST of a CSV column into the column's type, which then fails."""
    cell = '"' + source.replace('"', '""') + '"'
    return f"TRY_CAST(nullif({cell}, 'N/A') AS {kind}) AS {column}"


def _kernel_column(column: str, source: str) -> str:
    """SQL of one column, as short as possible for millions of rows; casts ignore tabs after times."""
    cell = '"' + source.replace('"', '""') + '"'
    if column == "start":
        return f"(TRY_CAST({cell} AS DECIMAL(20, 3)) * 1000)::BIGINT AS start"
    if column in ("duration", "wait"):
        return f"TRY_CAST(round(TRY_CAST({cell} AS DOUBLE) * 1000) AS BIGINT) AS {column}"
    if column in ("step", "stream"):
        return _cast(source, "BIGINT", column)
    if column == "core":  # older CANN writes HCCL
        return f"if({cell} = 'HCCL', 'COMMUNICATION', {cell}) AS core"
    if column.endswith("shapes"):
        cell = f"replace({cell}, '\"', '')"
    return f"nullif({cell}, 'N/A') AS {column}"


def _read_memory_samples(path: Path, megabyte: int, sink: Sink) -> list[dict[str, str]]:
    rows = list(csv_rows(path, ("Component", "Timestamp(us)", "Total Reserved(MB)")))
    allocated = [_scaled(row.get("Total Allocated(MB)"), megabyte) for row in rows]
    sink.add(
        "memory",
        {
            "kind": "sample",
            "name": [row["Component"] for row in rows],
            "time": [ns_from_us(row["Timestamp(us)"]) for row in rows],
            "allocated": allocated,
            "reserved": [_scaled(row["Total Reserved(MB)"], megabyte) for row in rows],
            "active": [_scaled(row.get("Total Active(MB)"), megabyte) for row in rows],
        },
    )
    # What an allocator or the driver reserves is not used: it is given back on demand.
    peak = max((size for size in allocated if size is not None), default=None)
    if peak is not None:
        sink.add("ranks_memory", {"peak": peak, "basis": "measured"})
    return rows


def _read_module_memory(path: Path, megabyte: int, sink: Sink) -> list[dict[str, str]]:
    rows = list(csv_rows(path, ("Component", "Timestamp(us)", "Total Reserved(MB)")))
    sink.add(
        "memory",
        {
            "kind": "module",
            "name": [row["Component"] for row in rows],
            "time": [ns_from_us(row["Timestamp(us)"]) for row in rows],
            "reserved": [_scaled(row["Total Reserved(MB)"], megabyte) for row in rows],
        },
    )
    return rows


def _read_operator_memory(path: Path, megabyte: int, sink: Sink) -> list[dict[str, str]]:
    rows = list(csv_rows(path, ("Name", "Size(KB)", "Allocation Time(us)")))
    prefix = "Allocation Total "
    columns: dict[str, Any] = {
        "kind": "operator",
        "name": [row["Name"] for row in rows],
        "time": [ns_from_us(row["Allocation Time(us)"]) for row in rows],
        "size": [_scaled(row["Size(KB)"], _KIB) for row in rows],
        "lifetime": [ns_from_us(row.get("Duration(us)")) for row in rows],
    }
    for what in ("allocated", "reserved", "active"):
        columns[what] = [_scaled(row.get(f"{prefix}{what.title()}(MB)"), megabyte) for row in rows]
    sink.add("memory", columns)
    return rows


_MEMORY_FILES = {
    "memory_record.csv": _read_memory_samples,
    "npu_module_mem.csv": _read_module_memory,
    "operator_memory.csv": _read_operator_memory,
}


def _scaled(text: str | None, unit: int) -> int | None:
    value = number((text or "").strip())
    return None if value is None or not abs(value) < 2**53 else round(value * unit)
