"""What `msprof --analyze` and the CSV export leave in a PROF_* directory: communication*.json and op_summary_*.csv.

Unlike the framework's files of the same name the JSON has no steps: operators lie side by side, and each gets the step
its start falls into.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from paceline.formats.ascend_communication import decode_file
from paceline.formats.ascend_csv import csv_header
from paceline.formats.ascend_db_source import byte_count, nanoseconds
from paceline.formats.ascend_db_steps import NO_STEPS, StepWindows
from paceline.formats.collective_names import hccl_sequence, op_of
from paceline.formats.msprof_timeline import Trace, stage_marks
from paceline.formats.reader import Sink

_MS = 1_000_000
_TIMES = {
    "start": "Start Timestamp(us)", "duration": "Elapse Time(ms)", "transit": "Transit Time(ms)",
    "wait": "Wait Time(ms)", "sync": "Synchronization Time(ms)", "idle": "Idle Time(ms)",
}  # fmt: skip
_PARTS = ("HCCS", "PCIE", "SIO")
_SUMMARY = {
    "name": ("Op Name", "VARCHAR"), "type": ("OP Type", "VARCHAR"), "core": ("Task Type", "VARCHAR"),
    "stream": ("Stream ID", "BIGINT"), "start": ("Task Start Time(us)", "µs"), "duration": ("Task Duration(us)", "µs"),
    "wait": ("Task Wait Time(us)", "µs"), "input_shapes": ("Input Shapes", "VARCHAR"),
    "input_types": ("Input Data Types", "VARCHAR"), "output_shapes": ("Output Shapes", "VARCHAR"),
}  # fmt: skip

Number = float | int | str | None


class _Transport(msgspec.Struct, rename={"size": "Transit Size(MB)", "packets": "Size Distribution"}):
    size: Number = None
    packets: dict[str, list[Number]] = {}


class _Operation(msgspec.Struct, rename={"times": "Communication Time Info", "links": "Communication Bandwidth Info"}):
    times: dict[str, Number]
    links: dict[str, _Transport] = {}


class _Link(
    msgspec.Struct, rename={"transport": "Transport Type", "size": "Transit Size(MB)", "time": "Transit Time(ms)"}
):
    transport: str = "SDMA"
    size: Number = None
    time: Number = None


_OPERATIONS = msgspec.json.Decoder(dict[str, _Operation])
_MATRIX = msgspec.json.Decoder(dict[str, dict[str, _Link]])


def read_analysed(path: Path, step_traces: tuple[Trace, ...], sink: Sink) -> None:
    """collectives and packets of analyze/communication.json."""
    windows = _windows(step_traces, sink)
    collectives, packets = [], []
    for name, operation in decode_file(_OPERATIONS, path).items():
        if name.startswith("Total Op Info"):
            continue
        times = {
            column: nanoseconds(operation.times.get(key), 1000 if column == "start" else _MS)
            for column, key in _TIMES.items()
        }
        shared = {**_named(name), "step": windows.step_of(times["start"])}
        op = op_of(shared["name"])
        collectives.append({**shared, **times, "op": op, "bytes": _moved(operation.links)})
        packets += [{**shared, **packet} for packet in _packets(operation.links)]
    _add(sink, "collectives", collectives)
    _add(sink, "packets", packets)


def read_matrix(path: Path, sink: Sink) -> None:
    """transfers of analyze/communication_matrix.json: one row per operator and link, ranks inside the group."""
    rows = []
    for name, links in decode_file(_MATRIX, path).items():
        for ends, link in links.items():
            source, _, target = ends.partition("-")
            rows.append({
                **_named(name), "src": nanoseconds(source, 1), "dst": nanoseconds(target, 1), "scope": "group",
                "transport": link.transport, "bytes": byte_count(link.size), "duration": nanoseconds(link.time, _MS),
            })  # fmt: skip
    _add(sink, "transfers", rows)


def read_summaries(paths: tuple[Path, ...], step_traces: tuple[Trace, ...], sink: Sink) -> None:
    """kernels of op_summary_*.csv; what ran between two step marks belongs to the step."""
    stage_marks(step_traces, sink)
    for path in paths:
        header = csv_header(path)
        picked = ", ".join(
            f"{_cell(source, kind)} AS {column}" for column, (source, kind) in _SUMMARY.items() if source in header
        )
        cells = ", ".join(f"'{name.replace(chr(39), chr(39) * 2)}': 'VARCHAR'" for name in header)
        sink.add_query(
            "kernels",
            f"""
            WITH event AS (
                SELECT {picked}
                FROM read_csv(?, columns = {{{cells}}}, header = true, auto_detect = false, delim = ',', quote = '"',
                              escape = '"', null_padding = true, strict_mode = false, max_line_size = 16777216)
            )
            SELECT event.*, mark.step
            FROM event LEFT JOIN step_marks AS mark ON event.start >= mark.start AND event.start < mark.finish
            WHERE event.start IS NOT NULL AND event.duration IS NOT NULL
            """,
            [str(path)],
        )
    sink.connection.execute("DROP TABLE step_marks")


def _cell(source: str, kind: str) -> str:
    cell = f"""nullif(trim("{source}", chr(9) || ' "'), 'N/A')"""
    if kind == "µs":
        return f"(TRY_CAST({cell} AS DECIMAL(30, 3)) * 1000)::BIGINT"
    return f"TRY_CAST({cell} AS {kind})"


def _windows(step_traces: tuple[Trace, ...], sink: Sink) -> StepWindows:
    stage_marks(step_traces, sink)
    rows = sink.connection.execute("SELECT step, start, finish FROM step_marks ORDER BY start").fetchall()
    sink.connection.execute("DROP TABLE step_marks")
    return StepWindows(*np.array(rows, dtype=np.int64).T) if rows else NO_STEPS


def _named(name: str) -> dict[str, Any]:
    plain, _, group = name.partition("@")
    return {"name": plain, "group": group or None, "sequence": hccl_sequence(plain)}


def _moved(links: dict[str, _Transport]) -> int | None:
    """Bytes to other ranks: RDMA + SDMA, where SDMA may only be given as its parts."""
    if not links:
        return None
    size = {name: byte_count(link.size) or 0 for name, link in links.items()}
    return size.get("RDMA", 0) + (size.get("SDMA", 0) or sum(size.get(part, 0) for part in _PARTS))


def _packets(links: dict[str, _Transport]) -> list[dict[str, Any]]:
    """Rows by transport and size; SDMA's only where its parts have none."""
    parts = any(links[part].packets for part in _PARTS if part in links)
    return [
        {"transport": transport, "packet_bytes": byte_count(size), "count": nanoseconds(values[0], 1),
         "duration": nanoseconds(values[1], _MS)}
        for transport, link in links.items()
        if not (transport == "SDMA" and parts)
        for size, values in link.packets.items()
        if len(values) == 2
    ]  # fmt: skip


def _add(sink: Sink, table: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        sink.add(table, {column: [row[column] for row in rows] for column in rows[0]})
