"""Reader of msprof exports: PROF_* trees with device_N/info.json.N and traces, in the older and the newer layout.

    older   device_N/timeline/{msprof,hccl,step_trace,task_time}_{device}_{model}_{iteration}.json
    newer   mindstudio_profiler_output/{msprof_*.json, step_trace_*.json, op_summary_*.csv, …},
            analyze/communication*.json

An export inside a *_ascend_pt or *_ascend_ms directory belongs to the rank of that directory.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from paceline.core.message import Sentence, message, said_at
from paceline.formats.ascend_text.csv_files import read_api_statistic, read_op_statistic
from paceline.formats.base import RankRecording, RecordingSection, Sink
from paceline.formats.msprof import FORMAT
from paceline.formats.msprof.analyze_output import read_analysed, read_matrix, read_summaries
from paceline.formats.msprof.timeline import TraceFile, read_communication, read_events, read_kernels, read_steps
from paceline.storage.file_tree import File, Tree, parent_of

_OUTPUT = "mindstudio_profiler_output"
_OF_DEVICE = ("timeline", "summary")
_DEVICE = re.compile(r"^device_(\d+)$")
_TRACE = re.compile(
    r"^(msprof|hccl|step_trace|task_time)_(?:slice_\d+_)?(\d+(?:_\d+)*)\.json$|^(step_trace)_([\d_]+)\.csv$"
)
_TABLE = re.compile(r"^(op_summary|op_statistic|api_statistic)_[\d_a-z]*\d\.csv$")
_PROFILE = re.compile(r"^(?P<worker>.+)_(?P<time>\d{14,17})_ascend_(?:pt|ms)$")
_IN_PROFILE = re.compile(r"_ascend_(?:pt|ms)$")
_PROF = re.compile(r"^PROF_\d+_(?P<time>\d{14,17})_\w+$")
_PROFILER_INFO = re.compile(r"^profiler_info_(\d+)\.json$")
_MAX_INFO = 1 << 20


class _Info(msgspec.Struct):
    """info.json.N; ids are numbers or strings, depending on the version."""

    rank_id: int | str | None = None
    hostname: str | None = None
    hostUid: str | None = None


@dataclass(frozen=True)
class _Export:
    """The export of one device."""

    root: str
    device: int | None
    info: File | None
    host: str | None
    rank: int | None
    files: dict[str, File]
    notes: tuple[Sentence, ...] = ()
    rank_assumed: bool = False


@dataclass(frozen=True)
class MsprofReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        for export in _with_ranks([export for root in _roots(tree) for export in _exports(tree, root)]):
            sections, notes = _sections(export)
            recorded, job = _time_and_job(export.root)
            yield RankRecording(
                self.name,
                export.rank,
                export.root,
                sections,
                recorded,
                job,
                (*export.notes, *notes),
                rank_assumed=export.rank_assumed,
            )


READER = MsprofReader()


def read_identity(host: str | None, device: int | None, sink: Sink) -> None:
    """Rows of `ranks`: one."""
    sink.add("ranks", {"host": host, "device": device})


# -- finding ---------------------------------------------------------------------------------------------------------


def _roots(tree: Tree) -> list[str]:
    """Directories with device_N/info.json.N, or with results of a device or in an output folder."""
    roots = set()
    for directory, files in tree.directories.items():
        above, _, base = directory.rpartition("/")
        found = _DEVICE.match(base)
        if (found and f"info.json.{found[1]}" in files) or (base == _OUTPUT and any(map(_wanted, files))):
            roots.add(above)
        elif base in _OF_DEVICE and _DEVICE.match(above.rpartition("/")[2]) and any(map(_wanted, files)):
            roots.add(parent_of(above))
    return sorted(roots)


def _exports(tree: Tree, root: str) -> Iterator[_Export]:
    """One per device; results in a common output folder belong to the only device, or to the first of several."""
    inside = f"{root}/" if root else ""
    common = {**tree.directories.get(f"{inside}{_OUTPUT}", {})}
    for name, file in tree.directories.get(f"{inside}analyze", {}).items():
        common[f"analyze/{name}"] = file
    devices = sorted(
        int(found[1])
        for directory in {name[len(inside) :].split("/")[0] for name in tree.directories_starting(inside)}
        if (found := _DEVICE.match(directory))
    )
    shared = (said_at(root, message("devices_in_one", list=str(devices))),)
    for device in devices:
        yield _export(
            tree, root, device, common, shared if common and len(devices) > 1 and device == devices[0] else ()
        )
        common = {}
    if not devices:
        yield _Export(root, None, None, None, _profile_rank(tree, root), common)


def _export(tree: Tree, root: str, device: int, common: dict[str, File], notes: tuple[Sentence, ...]) -> _Export:
    base = f"{root}/device_{device}" if root else f"device_{device}"
    own = tree.directories.get(base, {})
    files = {**tree.directories.get(f"{base}/timeline", {}), **tree.directories.get(f"{base}/summary", {}), **common}
    file = own.get(f"info.json.{device}")
    info, odd = _info(file)
    rank = _profile_rank(tree, root)
    if rank is None:
        rank = _number(info.rank_id)
    return _Export(root, device, file, info.hostname or info.hostUid, rank, files, notes + odd)


def _info(file: File | None) -> tuple[_Info, tuple[Sentence, ...]]:
    if file is None:
        return _Info(), ()  # a rank that nothing else tells is reported as assumed
    if file.size > _MAX_INFO:
        return _Info(), (said_at(file.relative, message("too_large", size=file.size)),)
    try:
        return msgspec.json.decode(file.path.read_bytes().removeprefix(BOM_UTF8), type=_Info), ()
    except (msgspec.DecodeError, OSError) as error:
        return _Info(), (said_at(file.relative, message("cannot_read_brackets", error=error)),)


def _number(text: int | str | None) -> int | None:
    """A rank; None for -1 ("unknown") and for anything that is not a number."""
    plain = str(text).strip()
    return int(plain) if plain.isdecimal() and len(plain) < 10 else None


def _profile_rank(tree: Tree, root: str) -> int | None:
    """The rank of the *_ascend_pt or *_ascend_ms directory that contains an export."""
    profile = parent_of(root)
    if not root or not _IN_PROFILE.search(profile.rpartition("/")[2] or tree.root.name):
        return None
    ranks = {int(found[1]) for name in tree.directories.get(profile, {}) if (found := _PROFILER_INFO.match(name))}
    return ranks.pop() if len(ranks) == 1 else None


def _with_ranks(exports: list[_Export]) -> Iterator[_Export]:
    """Assign the lowest free numbers to exports without a rank, in order of host and device."""
    used = {export.rank for export in exports}
    free = iter([number for number in range(len(exports)) if number not in used])
    unknown = sorted(
        (export for export in exports if export.rank is None),
        key=lambda export: (export.host or "", export.device or 0, export.root),
    )
    yield from (export for export in exports if export.rank is not None)
    for export in unknown:
        rank = next(free)
        note = said_at(export.root or ".", message("rank_assumed_by", n=rank))
        yield replace(export, rank=rank, notes=(*export.notes, note), rank_assumed=True)


def _time_and_job(root: str) -> tuple[str, str]:
    """Time of the recording, and the job whose cycles belong together."""
    profile = parent_of(root)
    if found := _PROFILE.match(profile.rpartition("/")[2]):
        return found["time"], f"{parent_of(profile)}/{found['worker']}"
    found = _PROF.match(root.rpartition("/")[2])
    return (found["time"] if found else ""), ""


# -- sections --------------------------------------------------------------------------------------------------------


def _wanted(name: str) -> bool:
    return bool(_TRACE.match(name) or _TABLE.match(name))


def _sections(export: _Export) -> tuple[tuple[RecordingSection, ...], tuple[Sentence, ...]]:
    traces, notes = _traces(export)
    sections = [
        RecordingSection(
            "identity",
            frozenset({"ranks"}),
            (export.info,) if export.info else (),
            partial(read_identity, export.host, export.device),
        ),
        *_timeline_sections(traces, export.files),
        *_analysed_sections(export.files, traces),
    ]
    for name, file in sorted(export.files.items()):
        found = _TABLE.match(name)
        if found and found[1] in _TABLES:
            table, read = _TABLES[found[1]]
            sections.append(RecordingSection(name, frozenset({table}), (file,), partial(read, file.path)))
    return tuple(sections), notes


_TABLES = {
    "op_statistic": ("operators", read_op_statistic),
    "api_statistic": ("host_calls", read_api_statistic),
}


@dataclass(frozen=True)
class _Traces:
    """The trace files of one device by kind."""

    files: dict[str, tuple[File, ...]]
    traces: dict[str, tuple[TraceFile, ...]]

    def of(self, *kinds: str) -> tuple[tuple[File, ...], tuple[TraceFile, ...]]:
        """Files of the first of these kinds that exists."""
        kind = next((kind for kind in kinds if self.files.get(kind)), kinds[0])
        return self.files.get(kind, ()), self.traces.get(kind, ())


def _traces(export: _Export) -> tuple[_Traces, tuple[Sentence, ...]]:
    """Trace files by kind; of several models in an older export, the one with the most iterations is the training."""
    found = [(match, file) for name, file in sorted(export.files.items()) if (match := _TRACE.match(name))]
    numbered = [(match[2] or match[4]).split("_") for match, _ in found]
    models = Counter(numbers[1] for numbers in numbered if len(numbers) == 3)
    training = max(models, key=lambda model: (models[model], model)) if models else None
    files: dict[str, list[tuple[TraceFile, File]]] = {}
    for (match, file), numbers in zip(found, numbered, strict=True):
        if len(numbers) == 3 and numbers[1] != training:
            continue
        iteration = int(numbers[2]) if len(numbers) == 3 else None
        files.setdefault(match[1] or match[3], []).append((TraceFile(file.path, iteration), file))
    for pairs in files.values():
        pairs.sort(key=lambda pair: (pair[0].iteration or 0, pair[1].name))
    notes = (said_at(export.root, message("models", list=str(sorted(models)), n=training)),) if len(models) > 1 else ()
    return _Traces(
        {kind: tuple(file for _, file in pairs) for kind, pairs in files.items()},
        {kind: tuple(trace for trace, _ in pairs) for kind, pairs in files.items()},
    ), (*notes, *_of_other_devices(export, found, numbered))


def _of_other_devices(
    export: _Export, found: list[tuple[re.Match[str], File]], numbered: list[list[str]]
) -> Iterator[Sentence]:
    """Older names begin with the number of the device."""
    for (_, file), numbers in zip(found, numbered, strict=True):
        if len(numbers) == 3 and export.device is not None and int(numbers[0]) != export.device:
            yield said_at(file.relative, message("named_for_device", n=numbers[0], other=export.device))


def _timeline_sections(traces: _Traces, files: dict[str, File]) -> Iterator[RecordingSection]:
    marks, step_traces = traces.of("step_trace")
    timeline, timelines = traces.of("msprof", "task_time")
    if marks or timeline:
        yield RecordingSection(
            "steps", frozenset({"steps"}), marks + timeline, partial(read_steps, step_traces, timelines)
        )
    summaries = tuple(file for name, file in sorted(files.items()) if name.startswith("op_summary_"))
    if summaries:
        yield RecordingSection(
            "kernels",
            frozenset({"kernels"}),
            summaries + marks,
            partial(read_summaries, tuple(file.path for file in summaries), step_traces),
        )
    elif timeline:
        yield RecordingSection(
            "kernels", frozenset({"kernels"}), marks + timeline, partial(read_kernels, step_traces, timelines)
        )
    if timeline:
        yield RecordingSection("events", frozenset({"events"}), timeline, partial(read_events, timelines))


def _analysed_sections(files: dict[str, File], traces: _Traces) -> Iterator[RecordingSection]:
    """Communication: sums of CANN if they exist, the rest from the tasks in the traces."""
    marks, step_traces = traces.of("step_trace")
    missing = ["collectives", "packets", "transfers"]
    if sums := files.get("analyze/communication.json"):
        missing = ["transfers"]
        yield RecordingSection(
            "analyze",
            frozenset({"collectives", "packets"}),
            (sums, *marks),
            partial(read_analysed, sums.path, step_traces),
        )
    if matrix := files.get("analyze/communication_matrix.json"):
        missing.remove("transfers")
        yield RecordingSection("links", frozenset({"transfers"}), (matrix,), partial(read_matrix, matrix.path))
    files_with_tasks, traces_with_tasks = traces.of("hccl", "msprof")
    if missing and files_with_tasks:
        yield RecordingSection(
            "communication",
            frozenset(missing),
            marks + files_with_tasks,
            partial(read_communication, step_traces, traces_with_tasks, tuple(missing)),
        )
