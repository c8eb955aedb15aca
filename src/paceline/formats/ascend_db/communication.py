"""Collectives, packets and links of one rank from Ascend SQLite results.

Sums of CANN (CommAnalyzer… in analysis.db or communication_analyzer.db) are used if they exist; otherwise the same sums
are computed from COMMUNICATION_OP and its tasks (formulas: hccl/task_sums.py).

CommAnalyzerBandwidth repeats the size of a transport in each of its packet rows, and its SDMA row is the sum of HCCS,
PCIE and SIO. CommAnalyzerMatrix has samples (top1, middle, bottom…) beside the "-total" rows that include them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from paceline.core.collective_names import hccl_sequence, op_of
from paceline.formats.ascend_db.database import Database, as_text, open_database
from paceline.formats.ascend_db.steps import step_number, step_windows
from paceline.formats.ascend_db.tables import duration_sql, group_of
from paceline.formats.base import Sink
from paceline.formats.hccl.task_sums import add_from_tasks, create_staging
from paceline.formats.step_windows import StepWindows
from paceline.formats.units import bytes_from_mb, scaled_decimal

Key = tuple[int | None, str, str | None]
"""step, operator name, group"""

_MS = 1_000_000
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
            _add_analysed(sums, windows, _recorded_starts(database) if database else {}, sink)
            _add_packets(sums, sink)
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
    sums: Database, windows: StepWindows, starts: dict[tuple[str, str | None], list[int]], sink: Sink
) -> None:
    moved = _moved(sums)
    rows: list[dict[str, Any]] = []
    values = ", ".join(sums.any(f"CommAnalyzerTime.{column}") for column in ("start_timestamp", *_TIMES.values()))
    for key, start, *times in _keyed(sums, "CommAnalyzerTime", values):
        _, name, group = key
        rows.append(
            {
                "step": key[0],
                "group": group,
                "op": op_of(name),
                "name": name,
                "sequence": hccl_sequence(name),
                "start": scaled_decimal(start, 1000),
                "bytes": moved.get(key),
                **dict(zip(_TIMES, (scaled_decimal(time, _MS) for time in times), strict=True)),
            }
        )
    _refine_starts(rows, starts)
    for row in rows:
        if not sums.has("CommAnalyzerTime", "step"):
            row["step"] = windows.step_of(row["start"])
    _add_rows(sink, "collectives", rows)


def _refine_starts(rows: list[dict[str, Any]], starts: dict[tuple[str, str | None], list[int]]) -> None:
    """Use the starts of COMMUNICATION_OP if it has the same executions.

    analysis.db stores µs as a double (0.25 µs is lost), and differences of -13 and +21 µs to the clock of the same
    rank's kernels and steps were seen.
    """
    executions: dict[tuple[str, str | None], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        executions[row["name"], row["group"]].append(row)
    for key, same in executions.items():
        exact = starts.get(key, [])
        if len(exact) == len(same):
            same.sort(key=lambda row: row["start"] or 0)
            for row, start in zip(same, exact, strict=True):
                row["start"] = start


def _recorded_starts(database: Database) -> dict[tuple[str, str | None], list[int]]:
    """(operator, group) → starts in order of time."""
    if not database.has("COMMUNICATION_OP", "opName", "groupName", "startNs"):
        return {}
    names = database.names("COMMUNICATION_OP.opName", "COMMUNICATION_OP.groupName")
    starts: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    start = database.integer("COMMUNICATION_OP.startNs")
    sql = f"SELECT {start} AS start, opName, groupName FROM COMMUNICATION_OP WHERE start >= 0 ORDER BY start"
    for times, ops, groups in database.stream(sql):
        for time, name, group in zip(times, names.of(ops), names.of(groups), strict=True):
            if name is not None:
                starts[name, group_of(group)].append(time)
    return starts


def _moved(sums: Database) -> dict[Key, int]:
    """Bytes sent to other ranks: RDMA + SDMA; SDMA may be recorded only as its parts."""
    if not sums.has("CommAnalyzerBandwidth", "hccl_op_name", "transport_type", "transit_size"):
        return {}
    sizes: dict[Key, dict[str, int]] = defaultdict(dict)
    for key, transport, size in _keyed(sums, "CommAnalyzerBandwidth", "transport_type, transit_size"):
        # The size of the transport is repeated in each of its packet rows: used once, not added.
        sizes[key][as_text(transport).upper()] = bytes_from_mb(size) or 0
    return {
        key: size.get("RDMA", 0) + (size.get("SDMA", 0) or sum(size.get(part, 0) for part in ("HCCS", "PCIE", "SIO")))
        for key, size in sizes.items()
    }


def _add_packets(sums: Database, sink: Sink) -> None:
    needed = ("hccl_op_name", "transport_type", "package_size", "count", "total_duration")
    if not sums.has("CommAnalyzerBandwidth", *needed):
        return
    rows = []
    for (step, name, group), transport, size, count, time in _keyed(
        sums, "CommAnalyzerBandwidth", ", ".join(needed[1:])
    ):
        packets, packet_bytes = scaled_decimal(count, 1), bytes_from_mb(size)
        if packets and packet_bytes:
            rows.append(
                {
                    "step": step,
                    "group": group,
                    "name": name,
                    "sequence": hccl_sequence(name),
                    "transport": as_text(transport).upper(),
                    "packet_bytes": packet_bytes,
                    "count": packets,
                    "duration": scaled_decimal(time, _MS),
                }
            )
    _add_rows(sink, "packets", _without_sums(rows))


def _without_sums(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out SDMA packets of operators whose HCCS, PCIE or SIO packets are recorded too."""
    parts = {(row["step"], row["name"], row["group"]) for row in rows if row["transport"] in ("HCCS", "PCIE", "SIO")}
    return [row for row in rows if row["transport"] != "SDMA" or (row["step"], row["name"], row["group"]) not in parts]


def _add_matrix(sums: Database, sink: Sink) -> None:
    columns = ("src_rank", "dst_rank", "transport_type", "transit_size", "transit_time")
    values = ", ".join(sums.any(f"CommAnalyzerMatrix.{column}") for column in columns)
    totals: list[dict[str, Any]] = []
    sampled, with_total = set(), set()
    for (step, name, group), source, target, transport, size, time in _keyed(sums, "CommAnalyzerMatrix", values):
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
        sink.warn(
            f"{stem} of group {group} in step {step} has samples but no total; its links are left out", file=sums.path
        )
    _add_rows(sink, "transfers", totals)


def _keyed(sums: Database, table: str, values: str) -> Iterator[tuple[Any, ...]]:
    """Rows of a CommAnalyzer table: (step, name, group), then the values; without totals."""
    step = sums.any(f"{table}.step")
    sql = f"SELECT {step}, hccl_op_name, {sums.any(f'{table}.group_name')}, {values} FROM {table} WHERE {_NO_TOTAL_ROW}"
    for columns in sums.stream(sql):
        for recorded, name, group, *rest in zip(*columns, strict=True):
            number = step_number(recorded) if step != "NULL" else None
            plain, _, suffix = as_text(name).partition("@")
            yield ((number, plain, group_of(suffix or (None if group is None else as_text(group)))), *rest)


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
    names, windows = database.names("COMMUNICATION_OP.opName", "COMMUNICATION_OP.groupName"), step_windows(database)
    sql = f"""
        SELECT {database.integer("COMMUNICATION_OP.opId")}, {database.integer("COMMUNICATION_OP.startNs")} AS start,
               {duration_sql(database, "COMMUNICATION_OP")}, opName, {database.any("COMMUNICATION_OP.groupName")}
        FROM COMMUNICATION_OP
        WHERE start >= 0
    """
    for op, start, duration, ids, groups in database.stream(sql):
        communicators = [group_of(group) for group in names.of(groups)]
        steps = [windows.step_of(time) for time in start]
        _insert(sink, "hccl_ops", (op, steps, communicators, names.of(ids), start, duration))


def _stage_small_tasks(database: Database, sink: Sink) -> None:
    if not database.has("TASK", "globalTaskId", "startNs", "endNs"):
        return
    names = database.names("COMMUNICATION_TASK_INFO.taskType")
    transports, links = database.enum("ENUM_HCCL_TRANSPORT_TYPE"), database.enum("ENUM_HCCL_LINK_TYPE")
    info = "COMMUNICATION_TASK_INFO"
    numbers = [database.integer(f"{info}.{column}") for column in ("opId", "planeId", "srcRank", "dstRank", "size")]
    sql = f"""
        SELECT {", ".join(numbers)}, {database.integer("TASK.startNs")} AS start, {duration_sql(database, "TASK")},
               {info}.taskType, {database.any(f"{info}.transportType")}, {database.any(f"{info}.linkType")}
        FROM {info}
        JOIN TASK ON TASK.globalTaskId = {info}.globalTaskId
        WHERE start >= 0
    """
    for op, plane, source, target, size, start, duration, kinds, transport, link in database.stream(sql):
        tasks = [_KINDS.get(kind or "", (kind or "").replace(" ", "_")) for kind in names.of(kinds)]
        transport_names, link_names = [transports.get(key) for key in transport], [links.get(key) for key in link]
        columns = (op, plane, tasks, start, duration, source, target, transport_names, link_names, size)
        _insert(sink, "hccl_tasks", columns)


def _insert(sink: Sink, table: str, columns: tuple[Any, ...]) -> None:
    """Append columns with UNNEST, which keeps nulls and needs no data frame."""
    lists = ", ".join("unnest(?)" for _ in columns)
    sink.connection.execute(f"INSERT INTO {table} SELECT {lists}", [list(column) for column in columns])
