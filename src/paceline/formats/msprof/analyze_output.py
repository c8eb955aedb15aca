"""Results of `msprof --analyze` and of the CSV export in PROF_* directories: communication*.json and op_summary_*.csv.

Unlike the framework's files of the same name the JSON has no steps: each operator belongs to the step that contains its
start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from paceline.core.collective_names import hccl_sequence, op_of
from paceline.formats.base import Sink
from paceline.formats.csv_files import csv_header, csv_scan
from paceline.formats.json_files import decode_file
from paceline.formats.msprof.timeline import TraceFile, stage_marks
from paceline.formats.step_windows import NO_STEPS, StepWindows
from paceline.formats.units import bytes_from_mb, scaled_decimal

_MS = 1_000_000
_TIMES = {
    "start": "Start Timestamp(us)",
    "duration": "Elapse Time(ms)",
    "transit": "Transit Time(ms)",
    "wait": "Wait Time(ms)",
    "sync": "Synchronization Time(ms)",
    "idle": "Idle Time(ms)",
}
_PARTS = ("HCCS", "PCIE", "SIO")
_SUMMARY = {
    "name": ("Op Name", "VARCHAR"),
    "type": ("OP Type", "VARCHAR"),
    "core": ("Task Type", "VARCHAR"),
    "stream": ("Stream ID", "BIGINT"),
    "start": ("Task Start Time(us)", "µs"),
    "duration": ("Task Duration(us)", "µs"),
    "wait": ("Task Wait Time(us)", "µs"),
    "input_shapes": ("Input Shapes", "VARCHAR"),
    "input_types": ("Input Data Types", "VARCHAR"),
    "output_shapes": ("Output Shapes", "VARCHAR"),
}

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


def read_analysed(path: Path, step_traces: tuple[TraceFile, ...], sink: Sink) -> None:
    """Rows of `collectives` and `packets` from analyze/communication.json."""
    windows = _windows(step_traces, sink)
    collectives, packets = [], []
    for name, operation in decode_file(_OPERATIONS, path).items():
        if name.startswith("Total Op Info"):
            continue
        times = {
            column: scaled_decimal(operation.times.get(key), 1000 if column == "start" else _MS)
            for column, key in _TIMES.items()
        }
        shared = {**_named(name), "step": windows.step_of(times["start"])}
        op = op_of(shared["name"])
        collectives.append({**shared, **times, "op": op, "bytes": _moved(operation.links)})
        packets += [{**shared, **packet} for packet in _packets(operation.links)]
    _add(sink, "collectives", collectives)
    _add(sink, "packets", packets)


def read_matrix(path: Path, sink: Sink) -> None:
    """Rows of `transfers` from analyze/communication_matrix.json: one per operator and link, ranks inside the group."""
    rows = []
    for name, links in decode_file(_MATRIX, path).items():
        for ends, link in links.items():
            source, _, target = ends.partition("-")
            rows.append(
                {
                    **_named(name),
                    "src": scaled_decimal(source, 1),
                    "dst": scaled_decimal(target, 1),
                    "scope": "group",
                    "transport": link.transport,
                    "bytes": bytes_from_mb(link.size),
                    "duration": scaled_decimal(link.time, _MS),
                }
            )
    _add(sink, "transfers", rows)


def read_summaries(paths: tuple[Path, ...], step_traces: tuple[TraceFile, ...], sink: Sink) -> None:
    """Rows of `kernels` from op_summary_*.csv; steps from the step marks."""
    stage_marks(step_traces, sink)
    for path in paths:
        header = csv_header(path)
        picked = ", ".join(
            f"{_cell(source, kind)} AS {column}" for column, (source, kind) in _SUMMARY.items() if source in header
        )
        sink.add_query(
            "kernels",
            f"""
            WITH event AS (
                SELECT {picked} FROM {csv_scan(header)}
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


def _windows(step_traces: tuple[TraceFile, ...], sink: Sink) -> StepWindows:
    stage_marks(step_traces, sink)
    rows = sink.connection.execute("SELECT step, start, finish FROM step_marks ORDER BY start").fetchall()
    sink.connection.execute("DROP TABLE step_marks")
    return StepWindows(*np.array(rows, dtype=np.int64).T) if rows else NO_STEPS


def _named(name: str) -> dict[str, Any]:
    plain, _, group = name.partition("@")
    return {"name": plain, "group": group or None, "sequence": hccl_sequence(plain)}


def _moved(links: dict[str, _Transport]) -> int | None:
    """Bytes sent to other ranks: RDMA + SDMA; SDMA may be recorded only as its parts."""
    if not links:
        return None
    size = {name: bytes_from_mb(link.size) or 0 for name, link in links.items()}
    return size.get("RDMA", 0) + (size.get("SDMA", 0) or sum(size.get(part, 0) for part in _PARTS))


def _packets(links: dict[str, _Transport]) -> list[dict[str, Any]]:
    """Rows by transport and size; those of SDMA only if its parts have none."""
    parts = any(links[part].packets for part in _PARTS if part in links)
    return [
        {
            "transport": transport,
            "packet_bytes": bytes_from_mb(size),
            "count": scaled_decimal(values[0], 1),
            "duration": scaled_decimal(values[1], _MS),
        }
        for transport, link in links.items()
        if not (transport == "SDMA" and parts)
        for size, values in link.packets.items()
        if len(values) == 2
    ]


def _add(sink: Sink, table: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        sink.add(table, {column: [row[column] for row in rows] for column in rows[0]})
