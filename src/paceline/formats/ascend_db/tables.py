"""Identity, kernels, memory, host calls, counters and events of one rank from its Ascend SQLite result.

Large tables (TASK, CANN_API, PYTORCH_API) are streamed in chunks; SQLite computes sums. Times are ns and sizes are bytes,
unlike in the text results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from paceline.core.collective_names import group_hash
from paceline.core.message import message
from paceline.formats.ascend_db.columns import (
    CallSums,
    StringIds,
    as_column,
    durations,
    labelled,
    otherwise,
    sum_calls,
)
from paceline.formats.ascend_db.database import Database, Join, as_text, open_database
from paceline.formats.ascend_db.steps import step_windows
from paceline.formats.base import Sink
from paceline.formats.parallel_groups import add_groups, decode_groups
from paceline.formats.step_windows import StepWindows

_MIB = 1 << 20
_NOTHING = "none.none"
"""A column that no database has."""
_PYTHON_FRAME = 50003
"""PYTORCH_API.type of Python functions: they are nested, so that their sum would count time several times."""


class _Sizes(msgspec.Struct):
    pipeline_model_parallel_size: int = 1
    world_size: int = 0


def read_identity(path: Path, rank: int, sink: Sink) -> None:
    """Rows of `ranks` (one) and `groups`."""
    with open_database(path) as database:
        metadata = _metadata(database)
        groups = decode_groups(metadata["parallel_group_info"]) if "parallel_group_info" in metadata else {}
        columns = {"host": _host(database), "device": _device(database, rank), "stage": _stage(metadata, rank)}
        sink.add("ranks", columns)
        add_groups(groups, sink)


def read_kernels(path: Path, sink: Sink) -> None:
    """Rows of `kernels`: computing tasks, and communication operators with core COMMUNICATION, as in the text results."""
    with open_database(path) as database:
        windows = step_windows(database)
        if _usable(database, sink, "TASK", "startNs", "globalTaskId") and database.has(
            "COMPUTE_TASK_INFO", "globalTaskId"
        ):
            _add_computing(database, windows, sink)
        if _usable(database, sink, "COMMUNICATION_OP", "startNs", "opName"):
            _add_communication(database, windows, sink)


def read_memory(path: Path, sink: Sink) -> None:
    """Rows of `memory` (allocations; samples of framework, device and modules) and `ranks_memory` (the peak)."""
    with open_database(path) as database:
        for table, kind, columns in _MEMORY:
            if _usable(database, sink, table, columns["time"]):
                _add_memory(database, table, kind, columns, sink)
        peak = _peak(database)
        if peak:
            sink.add("ranks_memory", {"peak": peak, "basis": "measured"})


def read_host_calls(path: Path, sink: Sink) -> None:
    """Rows of `host_calls`: CANN by layer, the framework's operators as one layer; summed by SQLite."""
    with open_database(path) as database:
        if _usable(database, sink, "CANN_API", "startNs", "endNs", "name"):
            _add_host_calls(database, "CANN_API", database.enum("ENUM_API_TYPE"), sink)
        if _usable(database, sink, "PYTORCH_API", "startNs", "endNs", "name"):
            _add_host_calls(database, "PYTORCH_API", None, sink)


def read_counters(path: Path, sink: Sink) -> None:
    """Rows of `counters`, named and scaled as in trace_view.json (MB/s are MiB/s, the hit rate is a fraction)."""
    with open_database(path) as database:
        for table, value, series, scale in _COUNTERS:
            if _usable(database, sink, table, "timestampNs", value):
                _add_counter(database, (table, value, series, scale), sink)


def read_events(path: Path, sink: Sink) -> None:
    """Rows of `events`: device tasks, communication operators, CANN and framework calls."""
    with open_database(path) as database:
        if _usable(database, sink, "TASK", "startNs"):
            _add_task_events(database, sink)
        if _usable(database, sink, "COMMUNICATION_OP", "startNs", "opName"):
            _add_communication_events(database, sink)
        for table, process in (("CANN_API", "CANN"), ("PYTORCH_API", "Python")):
            if _usable(database, sink, table, "startNs", "name"):
                _add_call_events(database, table, process, sink)


def group_of(name: str | None) -> str | None:
    """The group id that collectives have: the hash of the communicator's id, which may be stored instead of the id."""
    return None if not name else name if name.isdecimal() else group_hash(name)


def _usable(database: Database, sink: Sink, table: str, *columns: str) -> bool:
    """Whether a table can be read; a view, a virtual table or a missing column is a warning, a missing table is normal."""
    if table in database.views:
        sink.warn(message("table_view", table=table), file=database.path)
    elif table in database.columns and not database.has(table, *columns):
        missing = next(column for column in columns if not database.has(table, column))
        sink.warn(message("table_lacks", table=table, name=missing), file=database.path)
    return database.has(table, *columns)


# -- identity --------------------------------------------------------------------------------------------------------


def _metadata(database: Database) -> dict[str, str]:
    if not database.has("META_DATA", "name", "value"):
        return {}
    rows = database.rows("SELECT name, value FROM META_DATA WHERE name IS NOT NULL AND value IS NOT NULL")
    return {as_text(name): as_text(value) for name, value in rows}


def _stage(metadata: dict[str, str], rank: int) -> int | None:
    """rank // (world / pp), Megatron's order."""
    if "distributed_args" not in metadata:
        return None
    sizes = msgspec.json.decode(metadata["distributed_args"], type=_Sizes)
    if sizes.world_size < 1 or sizes.pipeline_model_parallel_size < 1:
        return None
    return rank // max(1, sizes.world_size // sizes.pipeline_model_parallel_size)


def _host(database: Database) -> str | None:
    for column in ("hostName", "hostUid"):
        if database.has("HOST_INFO", column):
            for (value,) in database.rows(f"SELECT {column} FROM HOST_INFO WHERE {column} <> ''"):
                return as_text(value)
    return None


def _device(database: Database, rank: int) -> int | None:
    if database.has("RANK_DEVICE_MAP", "rankId", "deviceId"):
        device = database.integer("RANK_DEVICE_MAP.deviceId")
        devices = database.rows(f"SELECT {device} FROM RANK_DEVICE_MAP WHERE rankId IN (?, -1)", (rank,))
    elif database.has("NPU_INFO", "id"):
        devices = database.rows(f"SELECT {database.integer('NPU_INFO.id')} FROM NPU_INFO")
    else:
        devices = []
    return devices[0][0] if len(devices) == 1 else None


# -- kernels ---------------------------------------------------------------------------------------------------------


def _add_computing(database: Database, windows: StepWindows, sink: Sink) -> None:
    texts = [
        f"COMPUTE_TASK_INFO.{column}"
        for column in ("name", "opType", "taskType", "inputShapes", "inputDataTypes", "outputShapes")
    ]
    names = database.names(*texts)
    info = Join("COMPUTE_TASK_INFO", "globalTaskId")
    numbers = ("TASK.startNs", "TASK.endNs", "TASK.streamId", "COMPUTE_TASK_INFO.waitNs")
    for start, end, stream, wait, name, kind, core, shapes, types, out in database.timed_columns(
        "TASK", numbers, texts, info
    ):
        sink.add(
            "kernels",
            {
                "step": windows.steps_of(start),
                "name": names.of(name),
                "type": names.of(kind),
                "core": names.of(core),
                "stream": stream,
                "start": start,
                "duration": durations(start, end),
                "wait": wait,
                "input_shapes": names.of(shapes, _plain),
                "input_types": names.of(types, _plain),
                "output_shapes": names.of(out, _plain),
            },
        )


def _add_communication(database: Database, windows: StepWindows, sink: Sink) -> None:
    texts = ("COMMUNICATION_OP.opName", "COMMUNICATION_OP.opType")
    numbers = [f"COMMUNICATION_OP.{column}" for column in ("startNs", "endNs", "waitNs")]
    names = database.names(*texts)
    for start, end, wait, name, kind in database.timed_columns("COMMUNICATION_OP", numbers, texts):
        sink.add(
            "kernels",
            {
                "step": windows.steps_of(start),
                "name": names.of(name),
                "type": names.of(kind),
                "core": "COMMUNICATION",
                "start": start,
                "duration": durations(start, end),
                "wait": wait,
            },
        )


def _plain(shapes: str) -> str | None:
    """Shapes without their quotes; None for N/A."""
    return None if shapes == "N/A" else shapes.strip('"')


# -- memory ----------------------------------------------------------------------------------------------------------

_MEMORY: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "OP_MEMORY",
        "operator",
        {
            "name": "name",
            "time": "allocationTime",
            "size": "size",
            "lifetime": "duration",
            "allocated": "allocationTotalAllocated",
            "reserved": "allocationTotalReserved",
            "active": "allocationTotalActive",
        },
    ),
    (
        "MEMORY_RECORD",
        "sample",
        {
            "name": "component",
            "time": "timestamp",
            "allocated": "totalAllocated",
            "reserved": "totalReserved",
            "active": "totalActive",
        },
    ),
    ("NPU_MEM", "sample", {"name": "type", "time": "timestampNs", "reserved": "hbm"}),
    ("NPU_MODULE_MEM", "module", {"name": "moduleId", "time": "timestampNs", "reserved": "totalReserved"}),
)


def _add_memory(database: Database, table: str, kind: str, columns: dict[str, str], sink: Sink) -> None:
    name_column = f"{table}.{columns['name']}"
    modules = database.enum("ENUM_MODULE") if table == "NPU_MODULE_MEM" else {}
    names = StringIds(database.names(name_column).known | modules, keeps_text=False)
    numbers = [column for column in columns if column != "name"]
    selected = ", ".join(f"{database.integer(f'{table}.{columns[column]}')} AS {column}" for column in numbers)
    sql = f"SELECT {database.any(name_column)}, {selected} FROM {table} WHERE time IS NOT NULL"
    for ids, *values in database.stream(sql):
        rows = dict(zip(numbers, map(as_column, values), strict=True))
        sink.add("memory", {"kind": kind, "name": names.of(as_column(ids), _component), **rows})


def _component(name: str) -> str | None:
    """Names as in memory_record.csv: APP instead of app."""
    return {"app": "APP", "device": "DEVICE"}.get(name, name) or None


def _peak(database: Database) -> int | None:
    """Most that the framework had allocated; what it or the driver reserves is not used."""
    if not database.has("MEMORY_RECORD", "totalAllocated", "timestamp"):
        return None
    [(peak,)] = database.rows(f"SELECT max({database.integer('MEMORY_RECORD.totalAllocated')}) FROM MEMORY_RECORD")
    return None if peak is None else int(peak)


# -- host calls and counters -----------------------------------------------------------------------------------------


def _add_host_calls(database: Database, table: str, layers: dict[Any, str] | None, sink: Sink) -> None:
    columns = [f"{table}.{column}" for column in ("name", "type")]
    summed: dict[tuple[Any, Any], CallSums] = {}
    for start, end, ids, kinds in database.columns_of(table, (f"{table}.startNs", f"{table}.endNs"), columns):
        if layers is None:
            chosen = np.ma.filled(kinds != _PYTHON_FRAME, True)
            sum_calls(summed, durations(start, end)[chosen], None, ids[chosen])
        else:
            sum_calls(summed, durations(start, end), kinds, ids)
    if summed:
        known_layers = StringIds(layers or {}, keeps_text=False).of(as_column([layer for layer, _ in summed]))
        names = database.names(f"{table}.name").of(as_column([name for _, name in summed]))
        count, time, shortest, longest = zip(*summed.values(), strict=True)
        sink.add(
            "host_calls",
            {
                "layer": "framework" if layers is None else known_layers,
                "name": names,
                "count": count,
                "time": time,
                "min": shortest,
                "max": longest,
            },
        )


_COUNTERS: tuple[tuple[str, str, str, float], ...] = (
    ("AICORE_FREQ", "freq", "MHz", 1.0),
    ("HBM", "bandwidth", "{mode}(MB/s)", 1 / _MIB),
    ("LLC", "throughput", "Throughput(MB/s)", 1 / _MIB),
    ("LLC", "hitRate", "Hit Rate(%)", 0.01),
    ("SOC_BANDWIDTH_LEVEL", "mataBwLevel", "Mata Bw Level", 1.0),
    ("SOC_BANDWIDTH_LEVEL", "l2BufferBwLevel", "L2 Buffer Bw Level", 1.0),
)


def _add_counter(database: Database, counter: tuple[str, str, str, float], sink: Sink) -> None:
    table, column, series, scale = counter
    mode_column, unit_column = {"HBM": ("HBM.type", "HBM.hbmId"), "LLC": ("LLC.mode", "LLC.llcId")}.get(
        table, (_NOTHING, _NOTHING)
    )
    modes = database.names(mode_column)
    value = database.any(f"{table}.{column}")
    sql = f"""
        SELECT {database.integer(f"{table}.timestampNs")} AS time, {value},
               {database.any(mode_column)}, {database.integer(unit_column)}
        FROM {table}
        WHERE time IS NOT NULL AND typeof({value}) IN ('integer', 'real')
    """
    for time, values, mode_ids, units in database.stream(sql):
        labels = [(mode or "").title() for mode in modes.of(as_column(mode_ids))]
        sink.add(
            "counters",
            {
                "name": [_counter_name(table, series, unit, mode) for unit, mode in zip(units, labels, strict=True)],
                "series": [series.format(mode=mode) for mode in labels],
                "time": list(time),
                "value": [number * scale for number in values],
            },
        )


def _counter_name(table: str, series: str, unit: int | None, mode: str) -> str:
    if table == "HBM":
        return f"HBM {unit}/{mode}"
    if table == "LLC":
        return f"LLC {unit} {mode}/{series.partition('(')[0]}"
    return "AI Core Freq" if table == "AICORE_FREQ" else series


# -- events ----------------------------------------------------------------------------------------------------------


def _add_task_events(database: Database, sink: Sink) -> None:
    joins = database.has("COMPUTE_TASK_INFO", "globalTaskId", "name") and database.has("TASK", "globalTaskId")
    join = Join("COMPUTE_TASK_INFO", "globalTaskId", required=False) if joins else None
    texts = ("COMPUTE_TASK_INFO.name" if joins else _NOTHING, "TASK.taskType")
    names = database.names("COMPUTE_TASK_INFO.name", "TASK.taskType")
    numbers = ("TASK.startNs", "TASK.endNs", "TASK.streamId", "TASK.depth")
    for start, end, stream, depth, ids, kinds in database.timed_columns("TASK", numbers, texts, join):
        categories = names.of(kinds)
        sink.add(
            "events",
            {
                "track": labelled("Ascend Hardware/Stream ", stream),
                "name": otherwise(names.of(ids), categories),
                "category": categories,
                "start": start,
                "duration": durations(start, end),
                "depth": depth,
            },
        )


def _add_communication_events(database: Database, sink: Sink) -> None:
    texts = ("COMMUNICATION_OP.opName", "COMMUNICATION_OP.groupName")
    numbers = ("COMMUNICATION_OP.startNs", "COMMUNICATION_OP.endNs")
    names = database.names(*texts)
    for start, end, ids, groups in database.timed_columns("COMMUNICATION_OP", numbers, texts):
        sink.add(
            "events",
            {
                "track": otherwise(names.of(groups, _group_track), "Communication/"),
                "name": names.of(ids),
                "start": start,
                "duration": durations(start, end),
            },
        )


def _group_track(name: str) -> str:
    return f"Communication/{group_of(name) or ''}"


def _add_call_events(database: Database, table: str, process: str, sink: Sink) -> None:
    names, layers = database.names(f"{table}.name"), StringIds(database.enum("ENUM_API_TYPE"), keeps_text=False)
    numbers = [f"{table}.{column}" for column in ("startNs", "endNs", "globalTid", "depth")]
    texts = (f"{table}.name", f"{table}.type")
    for start, end, thread, depth, ids, kinds in database.timed_columns(table, numbers, texts):
        sink.add(
            "events",
            {
                "track": labelled(f"{process}/Thread ", thread & 0xFFFFFFFF),
                "name": names.of(ids),
                "category": layers.of(kinds),
                "start": start,
                "duration": durations(start, end),
                "depth": depth,
            },
        )
