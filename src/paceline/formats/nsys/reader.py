"""Reader of Nsight Systems reports: one process with device work is one rank.

`.nsys-rep` files are exported by `nsys`, where it is installed, into the cache directory; an export beside the report is used
instead if there is one.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.ascend_db.database import is_sqlite, open_database
from paceline.formats.base import RankRecording, RecordingSection, Sink
from paceline.formats.kineto.communication_kernels import CommunicationKernels, communication_kernels
from paceline.formats.kineto.metadata import DeviceProperties, TraceHead, rank_in_name
from paceline.formats.kineto.tables import TABLES, read_staged_events, read_staged_trace
from paceline.formats.nsys import FORMAT
from paceline.formats.nsys.processes import (
    ReportProcess,
    device_memory,
    host_name,
    is_report,
    processes_with_device_work,
    session_start,
)
from paceline.formats.nsys.staging import stage_report
from paceline.storage.cache_dir import cache_name, cache_part
from paceline.storage.file_tree import File, Tree

_REPORT = ".nsys-rep"
_EXPORT_SECONDS = 3600


@dataclass(frozen=True)
class NsysReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        kernels = communication_kernels()
        names = {file.relative for file in tree.files}
        found: list[RankRecording] = []
        for file in tree.files:
            if FORMAT.files.matches(file.relative) and (export := _exported(file, names)):
                found += _recordings(self.name, export, kernels)
        yield from _numbered(found)


READER = NsysReader()


def _exported(file: File, names: set[str]) -> File | None:
    """The SQLite file of a report; None if it is none, cannot be made, or lies beside the report."""
    if not file.name.endswith(_REPORT):
        return file if is_sqlite(file.path) else None
    beside = file.relative.removesuffix(_REPORT)
    if {beside + ".sqlite", beside + ".sqlite3"} & names or not (program := shutil.which("nsys")):
        return None
    target = cache_part("nsys") / cache_name(f"{file.path.absolute()} {file.size} {file.mtime_ns}") / "report.sqlite"
    if not target.is_file():
        _export(program, file.path, target)
    stat = target.stat()
    return replace(file, path=target, size=stat.st_size, mtime_ns=stat.st_mtime_ns)


def _export(program: str, report: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial_file = target.with_name("partial.sqlite")
    partial_file.unlink(missing_ok=True)
    command = [program, "export", "--type", "sqlite", "--output", str(partial_file), str(report)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_EXPORT_SECONDS)
        partial_file.replace(target)
    except (OSError, subprocess.SubprocessError) as error:
        raise FormatError(message("nsys_export", error=error), file=report) from error


def _recordings(name: str, file: File, kernels: CommunicationKernels) -> Iterator[RankRecording]:
    try:
        with open_database(file.path) as database:
            if not is_report(database):
                return
            processes = processes_with_device_work(database, rank_in_name(file.relative))
            base, host, memory = session_start(database), host_name(database), device_memory(database)
    except FormatError:
        return
    for process in processes:
        devices = tuple(DeviceProperties(id, totalGlobalMem=size) for id, size in sorted(memory.items()))
        head = TraceHead(process.rank, process.world, host, base, (), devices, f"{base:020d}" if base else "", ())
        sections = (
            RecordingSection("identity", frozenset({"ranks"}), (file,), partial(_read_identity, host)),
            RecordingSection(
                "report", TABLES - {"groups"}, (file,), partial(_read_report, file, head, process, kernels)
            ),
            RecordingSection(
                "events", frozenset({"events", "flows"}), (file,), partial(_read_events, file, head, process)
            ),
        )
        yield RankRecording(name, process.rank, file.relative, sections, recorded=head.recorded)


def _read_identity(host: str | None, sink: Sink) -> None:
    sink.add("ranks", {"host": host})


def _read_report(
    file: File, head: TraceHead, process: ReportProcess, kernels: CommunicationKernels, sink: Sink
) -> None:
    with open_database(file.path) as database:
        stage_report(database, process.process, sink)
    read_staged_trace(head, kernels, sink)


def _read_events(file: File, head: TraceHead, process: ReportProcess, sink: Sink) -> None:
    with open_database(file.path) as database:
        stage_report(database, process.process, sink)
    read_staged_events(head, sink)


def _numbered(found: list[RankRecording]) -> Iterator[RankRecording]:
    """Assign ranks to processes whose rank is not known, in the order of files and cards."""
    taken = {recording.rank for recording in found}
    free = 0
    for recording in found:
        if recording.rank is None:
            while free in taken:
                free += 1
            taken.add(free)
            note = message("rank_assumed_file", file=recording.root, n=free)
            recording = replace(recording, rank=free, rank_assumed=True, notes=(*recording.notes, note))
        yield recording
