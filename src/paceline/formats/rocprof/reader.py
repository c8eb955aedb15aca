"""Reader of rocprofv3's JSON results: one process with device work is one rank.

The rank is the number in the path ("rank3"); else files are numbered in the order of their names, because the results name
only the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from paceline.core.message import Sentence, message
from paceline.formats.base import RankRecording, RecordingSection, Sink
from paceline.formats.chrome_trace.trace_events import read_head
from paceline.formats.kineto.communication_kernels import CommunicationKernels, communication_kernels
from paceline.formats.kineto.metadata import DeviceProperties, TraceHead, rank_in_name
from paceline.formats.kineto.tables import TABLES, read_staged_events, read_staged_trace
from paceline.formats.rocprof import FORMAT
from paceline.formats.rocprof.results import Results, read_metadata, read_results
from paceline.formats.rocprof.staging import stage_results
from paceline.storage.file_tree import File, Tree

_MARK = b'"rocprofiler-sdk-tool"'


@dataclass(frozen=True)
class RocprofReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        kernels = communication_kernels()
        found = [
            (file, head)
            for file in tree.files
            if FORMAT.files.matches(file.relative) and _MARK in (head := read_head(file.path))[:256]
        ]
        named = {file.relative: rank_in_name(file.relative.rpartition("/")[0]) for file, _ in found}
        taken = {rank for rank in named.values() if rank is not None}
        for file, head in found:
            rank, notes = named[file.relative], tuple[Sentence, ...]()
            if rank is None:
                rank = next(number for number in range(len(found) + len(taken) + 1) if number not in taken)
                taken.add(rank)
                notes = (message("rank_assumed_file", file=file.relative, n=rank),)
            yield _recording(self.name, file, _head(head, rank), kernels, notes)


READER = RocprofReader()


def _head(head: bytes, rank: int) -> TraceHead:
    metadata = read_metadata(head)
    recorded = f"{metadata.init_time:020d}" if metadata else ""
    return TraceHead(rank, 0, (metadata and metadata.node.hostname) or None, 0, (), (), recorded, ())


def _recording(
    name: str, file: File, head: TraceHead, kernels: CommunicationKernels, notes: tuple[Sentence, ...]
) -> RankRecording:
    sections = (
        RecordingSection("identity", frozenset({"ranks"}), (file,), partial(_read_identity, head.host)),
        RecordingSection("results", TABLES - {"groups"}, (file,), partial(_read_results, file, head, kernels)),
        RecordingSection("events", frozenset({"events", "flows"}), (file,), partial(_read_events, file, head)),
    )
    return RankRecording(
        name, head.rank, file.relative, sections, recorded=head.recorded, notes=notes, rank_assumed=bool(notes)
    )


def _read_identity(host: str | None, sink: Sink) -> None:
    sink.add("ranks", {"host": host})


def _stage(file: File, sink: Sink) -> Results:
    first, *others = read_results(file.path) or [Results()]
    if others:
        sink.warn(message("processes", n=1 + len(others)), file=file.path)
    stage_results(first, sink)
    return first


def _read_results(file: File, head: TraceHead, kernels: CommunicationKernels, sink: Sink) -> None:
    devices = tuple(DeviceProperties(number, name) for number, name in sorted(_stage(file, sink).cards().items()))
    read_staged_trace(_with_devices(head, devices), kernels, sink)


def _with_devices(head: TraceHead, devices: tuple[DeviceProperties, ...]) -> TraceHead:
    return TraceHead(head.rank, head.world, head.host, head.base, (), devices, head.recorded, ())


def _read_events(file: File, head: TraceHead, sink: Sink) -> None:
    _stage(file, sink)
    read_staged_events(head, sink)
