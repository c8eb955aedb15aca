"""Collectives, packets and links of one rank from Ascend SQLite results.

Sums of CANN (CommAnalyzer… in analysis.db or communication_analyzer.db) are used if they exist; otherwise the same sums
are computed from COMMUNICATION_OP and its tasks (formulas: hccl/task_sums.py).

CommAnalyzerBandwidth repeats the size of a transport in each of its packet rows, and its SDMA row is the sum of HCCS,
PCIE and SIO. CommAnalyzerMatrix has samples (top1, middle, bottom…) beside the "-total" rows that include them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.collective_names import hccl_sequence, op_of
from paceline.core.message import message
from paceline.formats.ascend_db.columns import Column, StringIds, durations, otherwise, scaled_column
from paceline.formats.ascend_db.database import Database, Join, as_text, open_database
from paceline.formats.ascend_db.steps import step_number, step_windows
from paceline.formats.ascend_db.tables import group_of
from paceline.formats.base import Sink
from paceline.formats.hccl.task_sums import add_from_tasks, create_staging
from paceline.formats.step_windows import StepWindows
from paceline.formats.units import bytes_from_mb, scaled_decimal

Key = tuple[int | None, str, str | None]
"""step, operator name, group"""

_MS = _MB = 1_000_000
_TIMES = {
    "duration": "elapse_time",
    "transit": "transit_time",
    "wait": "wait_time",
    "sync": "synchronization_time",
    "idle": "idle_time",
}
_NO_TOTAL_ROW = "hccl_op_name NOT LIKE 'Total Op Info%'"
_SAMPLE = re.compile(r"-(?:top|middle|bottom)\d*$")
_KINDS = {"RDMASendPayload": "RDMASend", "RDMASendNotify": "RDMASend"}


def read_collectives(main: Path | None, analysis: Path | None, sink: Sink) -> None:
    """Rows of `collectives` and `packets`."""
    with ExitStack() as stack:
        sums = stack.enter_context(open_database(analysis)) if analysis else None
        database = stack.enter_context(open_database(main)) if main else None
        if sums is not None and sums.has("CommAnalyzerTime", "hccl_op_name", "elapse_time"):
            windows = step_windows(database)
            bandwidth = _bandwidth(sums)
            moved = _moved(sums, bandwidth)
            _add_analysed(sums, windows, _recorded_starts(database) if database else {}, moved, sink)
            if sums.has("CommAnalyzerBandwidth", "package_size", "count", "total_duration"):
                _add_packets(bandwidth, sink)
        elif database is not None and _stage_tasks(database, sink):
            add_from_tasks(sink, ("collectives", "packets"))


def read_links(main: Path | None, analysis: Path | None, sink: Sink) -> None:
    """Rows of `transfers`; ranks are numbers inside the communicator."""
    with ExitStack() as stack:
        sums = stack.enter_context(open_database(analysis)) if analysis else None
        if sums is not None and sums.has("CommAnalyzerMatrix", "hccl_op_name", "src_rank", "dst_rank"):
            _add_matrix(sums, sink)
        elif main is not None and _stage_tasks(stack.enter_context(open_database(main)), sink):
            add_from_tasks(sink, ("transfers",))


# -- sums of CANN ----------------------------------------------------------------------------------------------------


def _add_analysed(
    sums: Database,
    windows: StepWindows,
    starts: dict[tuple[str, str | None], list[int]],
    moved: dict[Key, int],
    sink: Sink,
) -> None:
    values = ", ".join(sums.any(f"CommAnalyzerTime.{column}") for column in ("start_timestamp", *_TIMES.values()))
    for keys, recorded, *times in _keyed(sums, "CommAnalyzerTime", values):
        steps, names, groups = _unzipped(keys)
        begins = _refined_starts(keys, recorded, starts)
        if not sums.has("CommAnalyzerTime", "step"):
            steps = [windows.step_of(start) for start in begins]
        sink.add(
            "collectives",
            {
                "step": steps,
                "group": groups,
                "op": [op_of(name) for name in names],
                "name": names,
                "sequence": [hccl_sequence(name) for name in names],
                "start": begins,
                "bytes": [moved.get(key) for key in keys],
                **dict(zip(_TIMES, (scaled_column(time, _MS) for time in times), strict=True)),
            },
        )


def _unzipped(keys: list[Key]) -> tuple[list[int | None], list[str], list[str | None]]:
    return [step for step, _, _ in keys], [name for _, name, _ in keys], [group for _, _, group in keys]


def _refined_starts(
    keys: list[Key], recorded: Sequence[Any], starts: dict[tuple[str, str | None], list[int]]
) -> list[int | None]:
    """Use the starts of COMMUNICATION_OP if it has the same executions.

    analysis.db stores µs as a double (0.25 µs is lost), and differences of -13 and +21 µs to the clock of the same
    rank's kernels and steps were seen.
    """
    executions: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for index, (_, name, group) in enumerate(keys):
        executions[name, group].append(index)
    refined: list[int | None] = [None] * len(keys)
    for key, same in executions.items():
        exact = starts.get(key, [])
        if len(exact) == len(same) == 1:
            refined[same[0]] = exact[0]
            continue
        for index in same:
            refined[index] = scaled_decimal(recorded[index], 1000)
        if len(exact) == len(same):
            same.sort(key=lambda index: refined[index] or 0)
            for index, start in zip(same, exact, strict=True):
                refined[index] = start
    return refined


def _recorded_starts(database: Database) -> dict[tuple[str, str | None], list[int]]:
    """(operator, group) → starts in order of time."""
    if not database.has("COMMUNICATION_OP", "opName", "groupName", "startNs"):
        return {}
    texts = ("COMMUNICATION_OP.opName", "COMMUNICATION_OP.groupName")
    names = database.names(*texts)
    starts: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for times, ops, groups in database.timed_columns("COMMUNICATION_OP", ["COMMUNICATION_OP.startNs"], texts):
        columns = times.tolist(), names.of(ops).tolist(), names.of(groups, group_of).tolist()
        for time, name, group in zip(*columns, strict=True):
            if name is not None:
                starts[name, group].append(time)
    return {key: sorted(times) for key, times in starts.items()}


@dataclass(frozen=True)
class _Bandwidth:
    """CommAnalyzerBandwidth in columns; it is read once."""

    keys: list[Key]
    transports: list[str]
    size: Sequence[Any]
    """Of the transport, not of the packets."""
    packet_size: Sequence[Any]
    count: Sequence[Any]
    time: Sequence[Any]


def _bandwidth(sums: Database) -> _Bandwidth:
    table = "CommAnalyzerBandwidth"
    if sums.has(table, "hccl_op_name", "transport_type"):
        numbers = [
            sums.any(f"{table}.{column}") for column in ("transit_size", "package_size", "count", "total_duration")
        ]
        for keys, transports, *rest in _keyed(sums, table, f"transport_type, {', '.join(numbers)}"):
            return _Bandwidth(keys, _upper(transports), *rest)
    return _Bandwidth([], [], (), (), (), ())


def _upper(names: Sequence[Any]) -> list[str]:
    changed = {name: as_text(name).upper() for name in set(names)}
    return [changed[name] for name in names]


def _moved(sums: Database, bandwidth: _Bandwidth) -> dict[Key, int]:
    """Bytes sent to other ranks: RDMA + SDMA; SDMA may be recorded only as its parts."""
    if not sums.has("CommAnalyzerBandwidth", "transit_size"):
        return {}
    sizes: dict[Key, dict[str, int]] = defaultdict(dict)
    recorded = scaled_column(bandwidth.size, _MB).tolist()
    # The size of the transport is repeated in each of its packet rows: used once, not added.
    for key, transport, size in zip(bandwidth.keys, bandwidth.transports, recorded, strict=True):
        sizes[key][transport] = size or 0
    return {
        key: size.get("RDMA", 0) + (size.get("SDMA", 0) or sum(size.get(part, 0) for part in ("HCCS", "PCIE", "SIO")))
        for key, size in sizes.items()
    }


def _add_packets(bandwidth: _Bandwidth, sink: Sink) -> None:
    keys, transports = bandwidth.keys, bandwidth.transports
    packets, packet_bytes = scaled_column(bandwidth.count, 1), scaled_column(bandwidth.packet_size, _MB)
    chosen = _without_sums(keys, transports, np.flatnonzero(_positive(packets) & _positive(packet_bytes)).tolist())
    steps, names, groups = _unzipped([keys[index] for index in chosen])
    if chosen:
        sink.add(
            "packets",
            {
                "step": steps,
                "group": groups,
                "name": names,
                "sequence": [hccl_sequence(name) for name in names],
                "transport": [transports[index] for index in chosen],
                "packet_bytes": packet_bytes[chosen],
                "count": packets[chosen],
                "duration": scaled_column(bandwidth.time, _MS)[chosen],
            },
        )


def _positive(numbers: Column) -> Column:
    """Where a number is known and not 0."""
    found: Column = np.ma.filled(numbers, 0) != 0
    return found


def _without_sums(keys: list[Key], transports: list[str], rows: list[int]) -> list[int]:
    """Leave out SDMA packets of operators whose HCCS, PCIE or SIO packets are recorded too."""
    parts = {keys[index] for index in rows if transports[index] in ("HCCS", "PCIE", "SIO")}
    return [index for index in rows if transports[index] != "SDMA" or keys[index] not in parts]


def _add_matrix(sums: Database, sink: Sink) -> None:
    columns = ("src_rank", "dst_rank", "transport_type", "transit_size", "transit_time")
    values = ", ".join(sums.any(f"CommAnalyzerMatrix.{column}") for column in columns)
    totals: list[dict[str, Any]] = []
    sampled, with_total = set(), set()
    rows = (row for columns in _keyed(sums, "CommAnalyzerMatrix", values) for row in zip(*columns, strict=True))
    for (step, name, group), source, target, transport, size, time in rows:
        stem = _SAMPLE.sub("", name).removesuffix("-total")
        if _SAMPLE.search(name):
            sampled.add((step, stem, group))
            continue
        with_total.add((step, stem, group))
        totals.append(
            {
                "step": step,
                "group": group,
                "name": name,
                "sequence": hccl_sequence(name),
                "scope": "group",
                "src": scaled_decimal(source, 1),
                "dst": scaled_decimal(target, 1),
                "transport": as_text(transport or "SDMA").upper(),
                "bytes": bytes_from_mb(size),
                "duration": scaled_decimal(time, _MS),
            }
        )
    for step, stem, group in sorted(sampled - with_total, key=str):
        sink.warn(message("samples_step", name=stem, group=group, step=step), file=sums.path)
    _add_rows(sink, "transfers", totals)


def _keyed(sums: Database, table: str, values: str) -> Iterator[tuple[Any, ...]]:
    """Columns of a CommAnalyzer table: the keys (step, name, group), then the values; without totals.

    All rows at once: a collective's rows must be seen together, and they are as few as the collectives.
    """
    step = sums.any(f"{table}.step")
    sql = f"SELECT {step}, hccl_op_name, {sums.any(f'{table}.group_name')}, {values} FROM {table} WHERE {_NO_TOTAL_ROW}"
    rows = sums.rows(sql)
    if rows:
        steps, names, groups, *rest = zip(*rows, strict=True)
        yield [_key(*key, step != "NULL") for key in zip(steps, names, groups, strict=True)], *rest


@lru_cache(maxsize=65536, typed=True)
def _key(recorded: Any, name: Any, group: Any, has_steps: bool) -> Key:
    number = _step_number(recorded) if has_steps else None
    plain, _, suffix = (name if isinstance(name, str) else as_text(name)).partition("@")
    return number, plain, _group_of(suffix or (None if group is None else as_text(group)))


_step_number = lru_cache(maxsize=1024, typed=True)(step_number)
_group_of = lru_cache(maxsize=1024)(group_of)


def _add_rows(sink: Sink, table: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        sink.add(table, {column: [row[column] for row in rows] for column in rows[0]})


# -- sums of the tasks -----------------------------------------------------------------------------------------------


def _stage_tasks(database: Database, sink: Sink) -> bool:
    """Stage COMMUNICATION_OP and its tasks for hccl/task_sums.py; False if there are none."""
    if not database.has("COMMUNICATION_OP", "opName", "startNs"):
        return False
    create_staging(sink.connection)
    _stage_operators(database, sink)
    if database.has("COMMUNICATION_TASK_INFO", "opId", "globalTaskId", "taskType") and database.has(
        "COMMUNICATION_OP", "opId"
    ):
        _stage_small_tasks(database, sink)
    return True


def _stage_operators(database: Database, sink: Sink) -> None:
    texts = ("COMMUNICATION_OP.opName", "COMMUNICATION_OP.groupName")
    numbers = [f"COMMUNICATION_OP.{column}" for column in ("startNs", "endNs", "opId")]
    names, windows = database.names(*texts), step_windows(database)
    for start, end, op, ids, groups in database.timed_columns("COMMUNICATION_OP", numbers, texts):
        steps, communicators = windows.steps_of(start), names.of(groups, group_of)
        _insert(sink, "hccl_ops", (op, steps, communicators, names.of(ids), start, durations(start, end)))


def _stage_small_tasks(database: Database, sink: Sink) -> None:
    if not database.has("TASK", "globalTaskId", "startNs", "endNs"):
        return
    names = database.names("COMMUNICATION_TASK_INFO.taskType")
    transports = StringIds(database.enum("ENUM_HCCL_TRANSPORT_TYPE"), keeps_text=False)
    links = StringIds(database.enum("ENUM_HCCL_LINK_TYPE"), keeps_text=False)
    info = "COMMUNICATION_TASK_INFO"
    numbers = [f"{info}.{column}" for column in ("opId", "planeId", "srcRank", "dstRank", "size")]
    texts = [f"{info}.{column}" for column in ("taskType", "transportType", "linkType")]
    for start, end, op, plane, source, target, size, kinds, transport, link in database.timed_columns(
        "TASK", ["TASK.startNs", "TASK.endNs", *numbers], texts, Join(info, "globalTaskId")
    ):
        tasks, times = otherwise(names.of(kinds, _task_kind), ""), durations(start, end)
        columns = (op, plane, tasks, start, times, source, target, transports.of(transport), links.of(link), size)
        _insert(sink, "hccl_tasks", columns)


def _task_kind(name: str) -> str:
    return _KINDS.get(name, name.replace(" ", "_"))


def _insert(sink: Sink, table: str, columns: Sequence[Column | None]) -> None:
    """Append columns; None is a column of nulls. DuckDB ignores the masks of NumPy: they are columns of their own."""
    rows: dict[str, Column] = {}
    values = []
    for index, column in enumerate(columns):
        if column is None:
            values.append("NULL")
            continue
        rows[f"value_{index}"], rows[f"unknown_{index}"] = np.ma.getdata(column), np.ma.getmaskarray(column)
        values.append(f"CASE WHEN NOT unknown_{index} THEN value_{index} END")
    sink.connection.register("ascend_rows", rows)
    sink.connection.execute(f"INSERT INTO {table} SELECT {', '.join(values)} FROM ascend_rows")
    sink.connection.unregister("ascend_rows")
