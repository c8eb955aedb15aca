"""Reader of XPlane profiles: every device with work is a rank.

A file holds the devices of one host and names neither ranks nor processes: devices are numbered in the order of files and of
their numbers. On a GPU the lines "Stream #…" hold what ran, on a TPU "XLA Ops"; "Steps" marks steps there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import RankRecording, RecordingSection, Sink
from paceline.formats.kineto.communication_kernels import CommunicationKernels, communication_kernels
from paceline.formats.kineto.metadata import TraceHead
from paceline.formats.kineto.tables import TABLES, create_trace_table, read_staged_events, read_staged_trace
from paceline.formats.xplane import FORMAT
from paceline.formats.xplane.planes import Event, Plane, read_planes
from paceline.storage.file_tree import File, Tree

_DEVICE = re.compile(r"/device:(?:GPU|TPU):(\d+)$")
_HOST_PLANE = "/host:CPU"
_CALL = re.compile(r"(hip|hsa_|cuda|cu)[A-Z_]")
"""Calls of the device's runtime."""


@dataclass(frozen=True)
class XPlaneReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        kernels, rank = communication_kernels(), 0
        for file in tree.files:
            if FORMAT.files.matches(file.relative):
                for device, host in _devices(file):
                    yield _recording(self.name, file, device, _head(rank, host), kernels)
                    rank += 1


READER = XPlaneReader()


def _devices(file: File) -> Iterator[tuple[int, str | None]]:
    """Numbers of the devices that worked."""
    try:
        planes, host = read_planes(file.path)
        working = {_number(plane) for plane in planes if next(_work(plane), None) is not None}
    except FormatError:
        return
    for device in sorted(number for number in working if number is not None):
        yield device, host


def _number(plane: Plane) -> int | None:
    found = _DEVICE.match(plane.name)
    return int(found[1]) if found else None


def _work(plane: Plane) -> Iterator[Event]:
    return (event for event in plane.events() if event.line.startswith("Stream") or event.line == "XLA Ops")


def _head(rank: int, host: str | None) -> TraceHead:
    return TraceHead(rank, 0, host, 0, (), (), "", ())


def _recording(name: str, file: File, device: int, head: TraceHead, kernels: CommunicationKernels) -> RankRecording:
    sections = (
        RecordingSection("identity", frozenset({"ranks"}), (file,), partial(_read_identity, head.host)),
        RecordingSection(
            "device", TABLES - {"groups"}, (file,), partial(_read_device, file.path, device, head, kernels)
        ),
        RecordingSection(
            "events", frozenset({"events", "flows"}), (file,), partial(_read_events, file.path, device, head)
        ),
    )
    note = message("rank_assumed_device", file=file.relative, device=device, n=head.rank)
    return RankRecording(name, head.rank, f"{file.relative}#{device}", sections, notes=(note,), rank_assumed=True)


def _read_identity(host: str | None, sink: Sink) -> None:
    sink.add("ranks", {"host": host})


def _read_device(path: Path, device: int, head: TraceHead, kernels: CommunicationKernels, sink: Sink) -> None:
    _stage(path, device, sink)
    read_staged_trace(head, kernels, sink)


def _read_events(path: Path, device: int, head: TraceHead, sink: Sink) -> None:
    _stage(path, device, sink)
    read_staged_events(head, sink)


_Row = tuple[str, str, str, str, int, int, int, int, int]
_COLUMNS = ("name", "pid", "tid", "cat", "ts", "dur", "correlation", "stream", "device")


def _stage(path: Path, device: int, sink: Sink) -> None:
    """The table `trace` of one device: its work, its steps, and the calls that launched its work."""
    create_trace_table(sink)
    planes, _ = read_planes(path)
    rows = [row for plane in planes if _number(plane) == device for row in _device_rows(plane, device)]
    launched = {row[6] for row in rows if row[6]}
    rows += [row for plane in planes if plane.name == _HOST_PLANE for row in _calls(plane.events(), launched)]
    if not rows:
        return
    columns = {
        name: np.array(values, dtype=object if isinstance(values[0], str) else np.int64)
        for name, values in zip(_COLUMNS, zip(*rows, strict=True), strict=True)
    }
    sink.connection.register("plane_rows", columns)
    sink.connection.execute(
        "INSERT INTO trace BY NAME SELECT 'X' AS ph, * REPLACE (nullif(device, -1) AS device, nullif(stream, -1) AS stream) "
        "FROM plane_rows"
    )
    sink.connection.unregister("plane_rows")


def _device_rows(plane: Plane, device: int) -> Iterator[_Row]:
    streams: dict[str, int] = {}
    for event in plane.events():
        stream = streams.setdefault(event.line, len(streams))
        if event.line == "Steps" and event.name.isdecimal():
            yield _row(event, f"ProfilerStep#{event.name}", f"device {device}", "gpu_user_annotation", stream, device)
    for event in _work(plane):
        category = "gpu_memcpy" if event.name.startswith("Memcpy") else "kernel"
        category = "gpu_memset" if event.name.startswith("Memset") else category
        yield _row(event, event.name, f"device {device}", category, streams[event.line], device)


def _calls(events: Iterable[Event], launched: set[int]) -> Iterator[_Row]:
    for event in events:
        if event.correlation in launched and _CALL.match(event.name):
            category = "hip_runtime" if event.name.startswith("h") else "cuda_runtime"
            yield _row(event, event.name, "host", category, -1, -1)


def _row(event: Event, name: str, process: str, category: str, stream: int, device: int) -> _Row:
    return (name, process, event.line, category, event.start, event.duration, event.correlation, stream, device)
