"""Reader of what MindSpore's profiler wrote for MindInsight (0.5 to 2.3) and msadvisor: one recording per rank.

Three layouts, at any depth and with any number of ranks below one root:

    cluster_profiler/<host>/profiler/    MindInsight ≤ 1.3: names end in the device, ranks are in a rank table
    profiler*/  or flat                  MindInsight 1.4 to 2.3 and msadvisor: names end in the rank
    {rank}/profiler/                     the same, one directory per rank, as on OBS

HCCL traces are in hccl_info_{rank}/<operator>/iter<k>.trace, or in hccl_info/ if a directory has one rank.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

import msgspec

from paceline.core.message import Message, said_at
from paceline.formats.base import RankRecording
from paceline.formats.hccl.execution import RankCommunicators
from paceline.formats.mindinsight import FORMAT
from paceline.formats.mindinsight.groups import (
    PipelineShape,
    communicators_of_ranks,
    most_common_pipeline,
    read_link_ends,
)
from paceline.formats.mindinsight.rank_hosts import CLUSTER_DIRECTORY, NumberedDirectory, RankPlacement, find_placements
from paceline.formats.mindinsight.steps import stage_of
from paceline.storage.file_tree import File, Tree, parent_of

KNOWN = frozenset(
    {
        "step_trace_raw_#_detail_time.csv",
        "hccl_raw_#.csv",
        "memory_usage_#.pb",
        "memory_usage_summary_#.json",
        "memory_usage_details_#.json",
        "flops_#.txt",
        "flops_summary_#.json",
        "aicore_intermediate_#_type.csv",
        "aicore_intermediate_#_detail.csv",
        "aicpu_intermediate_#.csv",
        "framework_raw_#.csv",
        "gpu_op_type_info_#.csv",
        "gpu_op_detail_info_#.csv",
        "output_op_compute_time_#.txt",
        "output_timeline_data_#.txt",
        "ascend_timeline_display_#.json",
        "gpu_timeline_display_#.json",
        "timeline_display_#.json",
        "cpu_op_type_info_#.csv",
        "cpu_op_detail_info_#.csv",
        "cpu_op_execute_timestamp_#.txt",
        "pipeline_profiling_#.json",
        "minddata_pipeline_raw_#.csv",
        "minddata_pipeline_summary_#.json",
        "minddata_pipeline_summary_#.csv",
        "minddata_cpu_utilization_#.json",
        "device_queue_profiling_#.txt",
        "dataset_iterator_profiling_#.txt",
        "minddata_aicpu_#.txt",
        "minddata_getnext_profiling_#.txt",
    }
)
"""Names of the files that are read; # is the rank, or up to 1.3 the device."""

_INFO = "profiler_info_#.json"
_FOREIGN = frozenset({"FRAMEWORK", "ASCEND_PROFILER_OUTPUT"})
"""Directories in which later profilers use the same names; other readers read them."""

_NUMBERED = re.compile(
    r"(?P<stem>[a-z_]+)_(?P<key>\d{1,7})(?P<rest>(?:_detail_time|_detail|_type)?\.(?:csv|json|txt|pb))"
)
_ANALYSE = re.compile(
    r"(?:ascend|gpu)_cluster_analyse_(?P<mode>[a-z-]+)_(?P<stages>\d{1,7})_(?P<ranks>\d{1,7})_(?P<key>\d{1,7})\.csv"
)
_MODES = ("pipeline-parallel", "model-parallel", "data-parallel")
_HCCL_INFO = re.compile(r"hccl_info(?:_\d{1,7})?")
_TRACE = re.compile(r"iter(\d{1,9})\.trace")
_DEVICE = re.compile(rb'"device id"\s*:\s*"?(\d{1,7})')


@dataclass
class _DirectoryFiles:
    """The files of one rank in one directory."""

    files: dict[str, File] = field(default_factory=dict)
    splits: dict[str, tuple[File, PipelineShape]] = field(default_factory=dict)
    traces: list[File] = field(default_factory=list)
    info: File | None = None

    @property
    def is_recording(self) -> bool:
        """A profiler_info alone is not a recording: other formats have one too."""
        return bool(self.files or self.splits or self.traces)

    @property
    def split(self) -> tuple[File, PipelineShape] | None:
        return next((self.splits[mode] for mode in (*_MODES, *self.splits) if mode in self.splits), None)


@dataclass(frozen=True)
class MindInsightReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        found = _collect(tree)
        if not found:
            return
        placements = find_placements(tree, found)
        for members in _split_jobs(found, placements):
            yield from self._recordings(members, placements)

    def _recordings(
        self, members: dict[NumberedDirectory, _DirectoryFiles], placements: Mapping[NumberedDirectory, RankPlacement]
    ) -> Iterator[RankRecording]:
        # Imports a dozen modules: only if there are recordings of this format.
        from paceline.formats.mindinsight.sections import RankFiles, sections_of

        infos = {numbered: _read_info(files.info) for numbered, files in members.items()}
        pipeline = most_common_pipeline(
            files.split[1] if files.split else infos[numbered].pipeline for numbered, files in members.items()
        )
        communicators = _communicators(members, placements, pipeline)
        noted: set[Message | None] = {None}
        for numbered, files in sorted(members.items(), key=lambda member: placements[member[0]].rank):
            placement = placements[numbered]
            stage = stage_of(placement.rank, stages=pipeline.stages, ranks=pipeline.ranks) if pipeline else None
            rank = RankFiles(
                numbered.key,
                placement,
                stage,
                communicators[placement.rank],
                files.files,
                files.split[0] if files.split else None,
                tuple(files.traces),
            )
            # A note about the whole job is given once, not for each of its ranks.
            notes = (
                (said_at(numbered.directory, placement.note),) if placement.note and placement.note not in noted else ()
            )
            noted.add(placement.note)
            recorded = infos[numbered].recorded or _newest(files)
            yield RankRecording(
                self.name,
                placement.rank,
                numbered.directory,
                tuple(sections_of(rank)),
                recorded,
                notes=notes,
                rank_assumed=placement.assumed,
            )


READER = MindInsightReader()


# -- files ------------------------------------------------------------------------------------------------------------


def _collect(tree: Tree) -> dict[NumberedDirectory, _DirectoryFiles]:
    found: dict[NumberedDirectory, _DirectoryFiles] = defaultdict(_DirectoryFiles)
    traced: dict[str, list[File]] = defaultdict(list)
    for directory, files in tree.directories.items():
        above, _, last = directory.rpartition("/")
        if _HCCL_INFO.fullmatch(above.rpartition("/")[2]):
            traces = [file for name, file in files.items() if _TRACE.fullmatch(name)]
            traced[above] += sorted(traces, key=_iteration)
        elif last not in _FOREIGN:
            _collect_directory(directory, files, found)
    for directory, traces in traced.items():
        if traces:
            found[_directory_of_traces(directory, traces, found)].traces += traces
    return {numbered: files for numbered, files in found.items() if files.is_recording}


def _collect_directory(
    directory: str, files: Mapping[str, File], found: dict[NumberedDirectory, _DirectoryFiles]
) -> None:
    for name, file in files.items():
        if match := _NUMBERED.fullmatch(name):
            pattern = f"{match['stem']}_#{match['rest']}"
            numbered = NumberedDirectory(directory, int(match["key"]))
            if pattern in KNOWN:
                found[numbered].files[pattern] = file
                continue
            if pattern == _INFO:
                found[numbered].info = file
                continue
        if match := _ANALYSE.fullmatch(name):
            pipeline = PipelineShape(int(match["stages"]), int(match["ranks"]))
            found[NumberedDirectory(directory, int(match["key"]))].splits[match["mode"]] = (file, pipeline)


def _directory_of_traces(
    directory: str, traces: list[File], found: Mapping[NumberedDirectory, _DirectoryFiles]
) -> NumberedDirectory:
    """By the number in the directory's name, else the only number beside it, else the device in the trace."""
    base, name = parent_of(directory), directory.rpartition("/")[2]
    if number := name.removeprefix("hccl_info").removeprefix("_"):
        return NumberedDirectory(base, int(number))
    beside = {numbered for numbered, files in found.items() if numbered.directory == base and files.is_recording}
    if len(beside) == 1:
        return beside.pop()
    above = parent_of(base).rpartition("/")[2] if base else ""
    if not beside and above.isdecimal():
        return NumberedDirectory(base, int(above))  # {rank}/profiler/hccl_info
    return NumberedDirectory(base, _device_of(traces[0]))


def _device_of(trace: File) -> int:
    try:
        with trace.path.open("rb") as file:
            device = _DEVICE.search(file.read(4096))
    except OSError:
        device = None  # the section that reads the traces reports the error
    return int(device[1]) if device else 0


def _iteration(file: File) -> int:
    match = _TRACE.fullmatch(file.name)
    return int(match[1]) if match else 0


def _newest(files: _DirectoryFiles) -> str:
    """Modification time of the newest file, used if the time of the recording is not recorded."""
    all_of = [*files.files.values(), *(file for file, _ in files.splits.values()), *files.traces[:1]]
    newest = max(file.mtime_ns for file in all_of)
    return datetime.fromtimestamp(newest / 1e9, tz=timezone.utc).strftime("%Y%m%d%H%M%S")


# -- jobs -------------------------------------------------------------------------------------------------------------


def _split_jobs(
    found: dict[NumberedDirectory, _DirectoryFiles], placements: Mapping[NumberedDirectory, RankPlacement]
) -> Iterable[dict[NumberedDirectory, _DirectoryFiles]]:
    """All directories are one job (hosts may have one each), unless a rank was recorded twice."""
    if len({placements[numbered].rank for numbered in found}) == len(found):
        return [found]
    jobs: dict[str, dict[NumberedDirectory, _DirectoryFiles]] = defaultdict(dict)
    for numbered, files in found.items():
        jobs[_job_directory(numbered.directory)][numbered] = files
    return jobs.values()


def _job_directory(directory: str) -> str:
    """The directory that contains all ranks of a job, in any layout."""
    parts = directory.split("/") if directory else []
    if CLUSTER_DIRECTORY in parts:
        return "/".join(parts[: parts.index(CLUSTER_DIRECTORY)])
    if len(parts) > 1 and parts[-1].startswith("profiler") and parts[-2].isdecimal():
        return "/".join(parts[:-2])
    return directory


def _communicators(
    members: Mapping[NumberedDirectory, _DirectoryFiles],
    placements: Mapping[NumberedDirectory, RankPlacement],
    pipeline: PipelineShape | None,
) -> dict[int, RankCommunicators]:
    """rank → communicators; files are opened only if there is a pipeline."""
    if pipeline is None:
        return communicators_of_ranks(None, {placements[numbered].rank: None for numbered in members})
    ends = {}
    for numbered, files in members.items():
        raw = files.files.get("hccl_raw_#.csv")
        first = files.traces[0].path if files.traces else None
        ends[placements[numbered].rank] = read_link_ends(raw.path if raw else None, first)
    return communicators_of_ranks(pipeline, ends)


class _Info(msgspec.Struct):
    """The fields of profiler_info that are used; 2.0.0 has pipeline_stage_num instead of stage_num."""

    rank_size: int | str | None = None
    stage_num: int | str | None = None
    pipeline_stage_num: int | str | None = None
    profiling_stop_time: str = ""

    @property
    def pipeline(self) -> PipelineShape | None:
        stages = self.stage_num if self.stage_num is not None else self.pipeline_stage_num
        known = str(stages).isdecimal() and str(self.rank_size).isdecimal()
        return PipelineShape(int(stages or 0), int(self.rank_size or 0)) if known else None

    @property
    def recorded(self) -> str:
        return re.sub(r"\D", "", self.profiling_stop_time)


def _read_info(file: File | None) -> _Info:
    if file is None or file.size > 1 << 20:
        return _Info()
    try:
        return msgspec.json.decode(file.path.read_bytes(), type=_Info)
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _Info()  # not needed: stages and time are found without it
