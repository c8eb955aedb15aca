"""communication.json and communication_matrix.json: collectives, packets and links of one rank.

Sums are computed from the operators, never from "Total Op Info", and bandwidths are not read: SDMA is the sum of HCCS,
PCIE and SIO, so adding all five transports would count everything twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from paceline.core.collective_names import hccl_sequence, op_of
from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import Sink, Values
from paceline.formats.json_files import decode_file
from paceline.formats.last_result import LastFileResult

_MS = 1_000_000  # ns in a millisecond
_MB = 1_000_000  # HCCL's MB are decimal
_SDMA_PARTS = ("HCCS", "PCIE", "SIO")
_TOTAL = "Total Op Info"
_NO_PACKETS = msgspec.Raw(b"{}")
_SAMPLES = ("-top1", "-middle", "-bottom1", "-bottom2", "-bottom3")


class OperationTimes(
    msgspec.Struct,
    rename={
        "start": "Start Timestamp(us)",
        "elapse": "Elapse Time(ms)",
        "transit": "Transit Time(ms)",
        "wait": "Wait Time(ms)",
        "sync": "Synchronization Time(ms)",
        "idle": "Idle Time(ms)",
    },
):
    elapse: float
    start: msgspec.Raw = msgspec.Raw(b"")
    transit: float | None = None
    wait: float | None = None
    sync: float | None = None
    idle: float | None = None


class TransportUse(msgspec.Struct, rename={"size": "Transit Size(MB)", "packets": "Size Distribution"}):
    size: float = 0.0
    packets: msgspec.Raw = _NO_PACKETS
    """Packet size in MB → [count, ms]; decoded only if packets are asked for."""


class CommunicationOperation(
    msgspec.Struct, rename={"time": "Communication Time Info", "links": "Communication Bandwidth Info"}
):
    time: OperationTimes
    links: dict[str, TransportUse] = {}


class _Operations(msgspec.Struct):
    p2p: dict[str, CommunicationOperation] = {}
    collective: dict[str, CommunicationOperation] = {}


class MatrixLink(
    msgspec.Struct, rename={"transport": "Transport Type", "size": "Transit Size(MB)", "time": "Transit Time(ms)"}
):
    transport: str
    size: float
    time: float


class _Matrix(msgspec.Struct):
    p2p: dict[str, dict[str, MatrixLink]] = {}
    collective: dict[str, dict[str, MatrixLink]] = {}


_OPERATIONS = msgspec.json.Decoder(dict[str, _Operations])
_PACKETS = msgspec.json.Decoder(dict[str, tuple[float, float]])
_MATRIX = msgspec.json.Decoder(dict[str, _Matrix])


def read_collectives(path: Path, sink: Sink) -> None:
    """Rows of `collectives`: one per operator and step."""
    sink.add("collectives", collective_columns(_read_operations(path)))


def read_packets(path: Path, sink: Sink) -> None:
    """Rows of `packets`: one per operator, step, transport and packet size."""
    sink.add("packets", packet_columns(_read_operations(path), path))


def read_matrix(path: Path, sink: Sink) -> None:
    """Rows of `transfers`: sums per operator type and link; ranks are numbers inside the communicator."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for step_name, matrix in decode_file(_MATRIX, path).items():
        step = step_number(step_name, path)
        for operations in (matrix.p2p, matrix.collective):
            for name, links in _entries_without_samples(operations, sink, path):
                append_links(columns, step, name, links, path)
    sink.add("transfers", {**columns, "scope": "group"} if columns else {})


def step_number(text: str, path: Path) -> int:
    """13 from "step13"; recordings without steps write "step"."""
    digits = text.removeprefix("step")
    if digits and not digits.isdecimal():
        raise FormatError(message("bad_step", name=repr(text)), file=path)
    return int(digits or 0)


class RecordedOperation:
    """An operator of one step, its name split into name, group and sequence."""

    __slots__ = ("group", "name", "operation", "sequence", "step")

    def __init__(self, step: int, name: str, operation: CommunicationOperation) -> None:
        self.step, self.operation = step, operation
        self.name, _, group = name.partition("@")
        self.group = group or None
        self.sequence = hccl_sequence(self.name)


def _decode_operations(path: Path) -> list[RecordedOperation]:
    """Every operator of every step, without totals."""
    return [
        RecordedOperation(step, name, operation)
        for step_name, kinds in decode_file(_OPERATIONS, path).items()
        for step in [step_number(step_name, path)]
        for operations in (kinds.p2p, kinds.collective)
        for name, operation in operations.items()
        if not name.startswith(_TOTAL)
    ]


_read_operations = LastFileResult(_decode_operations)


def collective_columns(recorded: list[RecordedOperation]) -> dict[str, Any]:
    times = [collective.operation.time for collective in recorded]
    return {
        "step": [collective.step for collective in recorded],
        "name": [collective.name for collective in recorded],
        "group": [collective.group for collective in recorded],
        "op": [op_of(collective.name) for collective in recorded],
        "sequence": [collective.sequence for collective in recorded],
        "start": [ns_from_raw_us(time.start) for time in times],
        "duration": _scaled([time.elapse for time in times], _MS),
        "transit": _scaled([time.transit for time in times], _MS),
        "wait": _scaled([time.wait for time in times], _MS),
        "sync": _scaled([time.sync for time in times], _MS),
        "idle": _scaled([time.idle for time in times], _MS),
        "bytes": _scaled([_bytes_moved(collective.operation.links) for collective in recorded], _MB),
    }


def _bytes_moved(links: dict[str, TransportUse]) -> float | None:
    """MB sent to other ranks: RDMA + SDMA; SDMA may be recorded only as its parts."""
    if not links:
        return None
    total = links["RDMA"].size if "RDMA" in links else 0.0
    if "SDMA" in links and links["SDMA"].size:
        return total + links["SDMA"].size
    return total + sum(links[part].size for part in _SDMA_PARTS if part in links)


def packet_columns(recorded: list[RecordedOperation], path: Path) -> dict[str, Any]:
    try:
        rows = [
            (collective.step, collective.name, collective.group, collective.sequence, transport, size, count, duration)
            for collective in recorded
            for transport, moved in collective.operation.links.items()
            if moved.packets != _NO_PACKETS
            for size, (count, duration) in _PACKETS.decode(moved.packets).items()
        ]
    except msgspec.ValidationError as error:
        raise FormatError(message("bad_packets", error=error), file=path) from error
    if not rows:
        return {}
    step, name, group, sequence, transport, size, count, duration = zip(*rows, strict=True)
    return {
        "step": step,
        "name": name,
        "group": group,
        "sequence": sequence,
        "transport": transport,
        "packet_bytes": _scaled([float(text) for text in size], _MB),
        "count": _scaled(list(count), 1),
        "duration": _scaled(list(duration), _MS),
    }


def _entries_without_samples(
    operations: dict[str, dict[str, MatrixLink]], sink: Sink, path: Path
) -> Iterator[tuple[str, dict[str, MatrixLink]]]:
    """The entries that add up to the whole: "-total" entries, and operators that are recorded individually."""
    sampled, with_total = set(), set()
    for name, links in operations.items():
        kind, _, group = name.partition("@")
        stem = kind.rpartition("-")[0]
        if kind.endswith("-total"):
            with_total.add((stem, group))
        elif kind.endswith(_SAMPLES):
            sampled.add((stem, group))
            continue
        yield name, links
    for stem, group in sorted(sampled - with_total):
        sink.warn(message("samples", name=stem, group=group), file=path)


def append_links(columns: dict[str, list[Any]], step: int, name: str, links: dict[str, MatrixLink], path: Path) -> None:
    plain, _, group = name.partition("@")
    sequence = hccl_sequence(plain)
    for ends, link in links.items():
        source, _, target = ends.partition("-")
        if not (source.isdecimal() and target.isdecimal()):
            raise FormatError(message("bad_link", name=repr(ends)), file=path)
        columns["step"].append(step)
        columns["name"].append(plain)
        columns["group"].append(group or None)
        columns["sequence"].append(sequence)
        columns["src"].append(int(source))
        columns["dst"].append(int(target))
        columns["transport"].append(link.transport)
        columns["bytes"].append(round(link.size * _MB))
        columns["duration"].append(round(link.time * _MS))


def ns_from_raw_us(raw: msgspec.Raw | bytes) -> int | None:
    """ns from a JSON number or string of µs, exactly: a double cannot hold µs since 1970 to the nanosecond."""
    number = bytes(raw)
    if number[-4:-3] == b"." and number[:-4].isdigit() and number[-3:].isdigit():  # as nearly all are written
        return int(number[:-4] + number[-3:])
    text = number.decode().strip('"\t ')
    if not text or text == "null":
        return None
    whole, _, fraction = text.partition(".")
    if whole.isdecimal() and (fraction.isdecimal() or not fraction):
        return int(whole) * 1000 + int((fraction + "000")[:3])
    return round(float(text) * 1000)


def _scaled(values: list[float | None], unit: int) -> Values:
    """Integers of ns or bytes; a column without None becomes an array."""
    if None in values:
        return [None if value is None else round(value * unit) for value in values]
    return np.rint(np.array(values, dtype=np.float64) * unit).astype(np.int64)
