"""communication.json and communication_matrix.json: collectives, packets and links of one rank.

Sums are taken from the single operators, never from "Total Op Info", and bandwidths are not read at all: SDMA is the
sum of HCCS, PCIE and SIO, so adding all five transports would count everything twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from paceline.errors import FormatError
from paceline.formats.collective_names import hccl_sequence, op_of
from paceline.formats.reader import Sink

_MS = 1_000_000  # ns in a millisecond
_MB = 1_000_000  # HCCL's MB are decimal
_TOTAL = "Total Op Info"
_SAMPLES = ("-top1", "-middle", "-bottom1", "-bottom2", "-bottom3")

Decoded = TypeVar("Decoded")


class _Time(msgspec.Struct, rename={"start": "Start Timestamp(us)", "elapse": "Elapse Time(ms)",
                                    "transit": "Transit Time(ms)", "wait": "Wait Time(ms)",
                                    "sync": "Synchronization Time(ms)", "idle": "Idle Time(ms)"}):  # fmt: skip
    elapse: float
    start: msgspec.Raw = msgspec.Raw(b"")
    transit: float | None = None
    wait: float | None = None
    sync: float | None = None
    idle: float | None = None


class _Transport(msgspec.Struct, rename={"size": "Transit Size(MB)", "packets": "Size Distribution"}):
    size: float = 0.0
    packets: dict[str, tuple[float, float]] = {}


class _Operation(msgspec.Struct, rename={"time": "Communication Time Info", "links": "Communication Bandwidth Info"}):
    time: _Time
    links: dict[str, _Transport] = {}


class _Operations(msgspec.Struct):
    p2p: dict[str, _Operation] = {}
    collective: dict[str, _Operation] = {}


class _Link(msgspec.Struct, rename={"transport": "Transport Type", "size": "Transit Size(MB)",
                                    "time": "Transit Time(ms)"}):  # fmt: skip
    transport: str
    size: float
    time: float


class _Matrix(msgspec.Struct):
    p2p: dict[str, dict[str, _Link]] = {}
    collective: dict[str, dict[str, _Link]] = {}


_COMMUNICATION = msgspec.json.Decoder(dict[str, _Operations])
_MATRIX = msgspec.json.Decoder(dict[str, _Matrix])


def read_communication(path: Path, sink: Sink) -> None:
    """collectives and packets, one row per operator and step."""
    collectives: dict[str, list[Any]] = defaultdict(list)
    packets: dict[str, list[Any]] = defaultdict(list)
    for step, name, operation in _operations(decode_file(_COMMUNICATION, path), path):
        plain, _, group = name.partition("@")
        sequence = hccl_sequence(plain)
        _append_collective(collectives, (step, plain, group or None, sequence), operation)
        _append_packets(packets, (step, plain, group or None, sequence), operation.links)
    sink.add("collectives", collectives)
    sink.add("packets", packets)


def read_matrix(path: Path, sink: Sink) -> None:
    """transfers: the sums per operator type and link; ranks are numbers inside the communicator."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for step_name, matrix in decode_file(_MATRIX, path).items():
        step = step_number(step_name, path)
        for operations in (matrix.p2p, matrix.collective):
            for name, links in _sums(operations, sink, path):
                _append_links(columns, step, name, links, path)
    sink.add("transfers", {**columns, "scope": "group"} if columns else {})


def decode_file(decoder: msgspec.json.Decoder[Decoded], path: Path) -> Decoded:
    """Decode a JSON file of known shape; says where it is cut off or differs."""
    data = path.read_bytes()
    if not data.strip():
        raise FormatError("is empty", file=path)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise FormatError(f"is not what its name says: {error}", file=path) from error
    except msgspec.DecodeError as error:
        cut = "is cut off" if "truncated" in str(error) else "is not valid JSON"
        raise FormatError(f"{cut} ({error}; {len(data):,} bytes)", file=path) from error
    except RecursionError as error:
        raise FormatError("is nested too deeply; refused", file=path) from error


def step_number(text: str, path: Path) -> int:
    """13 from "step13"; recordings without steps write "step"."""
    digits = text.removeprefix("step")
    if digits and not digits.isdecimal():
        raise FormatError(f"has a step called {text!r}", file=path)
    return int(digits or 0)


def _operations(steps: dict[str, _Operations], path: Path) -> Iterator[tuple[int, str, _Operation]]:
    for step_name, kinds in steps.items():
        step = step_number(step_name, path)
        for operations in (kinds.p2p, kinds.collective):
            for name, operation in operations.items():
                if not name.startswith(_TOTAL):
                    yield step, name, operation


def _append_collective(
    columns: dict[str, list[Any]], key: tuple[int, str, str | None, int | None], operation: _Operation
) -> None:
    step, name, group, sequence = key
    time = operation.time
    columns["step"].append(step)
    columns["name"].append(name)
    columns["group"].append(group)
    columns["op"].append(op_of(name))
    columns["sequence"].append(sequence)
    columns["start"].append(microseconds(time.start))
    columns["duration"].append(round(time.elapse * _MS))
    columns["transit"].append(_nanoseconds(time.transit))
    columns["wait"].append(_nanoseconds(time.wait))
    columns["sync"].append(_nanoseconds(time.sync))
    columns["idle"].append(_nanoseconds(time.idle))
    columns["bytes"].append(_moved(operation.links))


def _moved(links: dict[str, _Transport]) -> int | None:
    """Bytes to other ranks: RDMA + SDMA, where SDMA may only be given as its parts."""
    if not links:
        return None
    sizes = {name: transport.size for name, transport in links.items()}
    parts = sizes.get("HCCS", 0.0) + sizes.get("PCIE", 0.0) + sizes.get("SIO", 0.0)
    return round((sizes.get("RDMA", 0.0) + (sizes.get("SDMA", 0.0) or parts)) * _MB)


def _append_packets(
    columns: dict[str, list[Any]],
    key: tuple[int, str, str | None, int | None],
    links: dict[str, _Transport],
) -> None:
    step, name, group, sequence = key
    for transport, moved in links.items():
        for size, (count, duration) in moved.packets.items():
            columns["step"].append(step)
            columns["name"].append(name)
            columns["group"].append(group)
            columns["sequence"].append(sequence)
            columns["transport"].append(transport)
            columns["packet_bytes"].append(round(float(size) * _MB))
            columns["count"].append(round(count))
            columns["duration"].append(round(duration * _MS))


def _sums(operations: dict[str, dict[str, _Link]], sink: Sink, path: Path) -> Iterator[tuple[str, dict[str, _Link]]]:
    """The entries that add up to everything: "-total" ones, and operators recorded one by one."""
    sampled, summed = set(), set()
    for name, links in operations.items():
        kind, _, group = name.partition("@")
        stem = kind.rpartition("-")[0]
        if kind.endswith("-total"):
            summed.add((stem, group))
        elif kind.endswith(_SAMPLES):
            sampled.add((stem, group))
            continue
        yield name, links
    for stem, group in sorted(sampled - summed):
        sink.warn(f"{stem} of group {group} has samples but no total; its links are left out", file=path)


def _append_links(columns: dict[str, list[Any]], step: int, name: str, links: dict[str, _Link], path: Path) -> None:
    plain, _, group = name.partition("@")
    sequence = hccl_sequence(plain)
    for ends, link in links.items():
        source, _, target = ends.partition("-")
        if not (source.isdecimal() and target.isdecimal()):
            raise FormatError(f"has a link called {ends!r}", file=path)
        columns["step"].append(step)
        columns["name"].append(plain)
        columns["group"].append(group or None)
        columns["sequence"].append(sequence)
        columns["src"].append(int(source))
        columns["dst"].append(int(target))
        columns["transport"].append(link.transport)
        columns["bytes"].append(round(link.size * _MB))
        columns["duration"].append(round(link.time * _MS))


def microseconds(raw: msgspec.Raw | bytes) -> int | None:
    """ns from a JSON number or string of µs, exactly: a double cannot hold today's epoch to the nanosecond."""
    text = bytes(raw).decode().strip('"\t ')
    if not text or text == "null":
        return None
    whole, _, fraction = text.partition(".")
    if whole.isdecimal() and (fraction.isdecimal() or not fraction):
        return int(whole) * 1000 + int((fraction + "000")[:3])
    return round(float(text) * 1000)


def _nanoseconds(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * _MS)
