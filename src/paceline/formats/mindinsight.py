"""What MindSpore's profiler wrote for MindInsight (0.5 to 2.3) and msadvisor: one part per rank.

Three layouts, at any depth and with any number of ranks below one root:

    cluster_profiler/<host>/profiler/    MindInsight ≤ 1.3: names end in the device, ranks come from a rank table
    profiler*/  or flat                  MindInsight 1.4 to 2.3 and msadvisor: names end in the rank
    {rank}/profiler/                     the same, one directory per rank, as it lies on OBS

HCCL traces lie beside in hccl_info_{rank}/<operator>/iter<k>.trace, or in hccl_info/ where a directory has one rank.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from paceline.formats.hccl_execution import Neighbours
from paceline.formats.mindinsight_groups import Pipeline, agreed, neighbours, read_link_ends
from paceline.formats.mindinsight_places import CLUSTER, Owner, Place, find_places
from paceline.formats.mindinsight_steps import stage_of
from paceline.formats.reader import Part
from paceline.storage.tree import File, Tree, parent_of

KNOWN = frozenset({
    "step_trace_raw_#_detail_time.csv", "hccl_raw_#.csv", "memory_usage_#.pb", "memory_usage_summary_#.json",
    "memory_usage_details_#.json", "flops_#.txt", "flops_summary_#.json", "aicore_intermediate_#_type.csv",
    "aicore_intermediate_#_detail.csv", "aicpu_intermediate_#.csv", "framework_raw_#.csv", "gpu_op_type_info_#.csv",
    "gpu_op_detail_info_#.csv", "output_op_compute_time_#.txt", "output_timeline_data_#.txt",
    "ascend_timeline_display_#.json", "gpu_timeline_display_#.json", "timeline_display_#.json",
    "cpu_op_type_info_#.csv", "cpu_op_detail_info_#.csv", "cpu_op_execute_timestamp_#.txt",
    "pipeline_profiling_#.json", "minddata_pipeline_raw_#.csv", "minddata_pipeline_summary_#.json",
    "minddata_pipeline_summary_#.csv", "minddata_cpu_utilization_#.json", "device_queue_profiling_#.txt",
    "dataset_iterator_profiling_#.txt", "minddata_aicpu_#.txt", "minddata_getnext_profiling_#.txt",
})  # fmt: skip
"""File names this format is made of; # is the rank, or the device up to 1.3."""

_INFO = "profiler_info_#.json"
_FOREIGN = frozenset({"FRAMEWORK", "ASCEND_PROFILER_OUTPUT"})
"""Later profilers put files of the same names here; their own readers know what to do with them."""

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
class _Found:
    """The files of one rank in one directory."""

    files: dict[str, File] = field(default_factory=dict)
    analyse: dict[str, tuple[File, Pipeline]] = field(default_factory=dict)
    traces: list[File] = field(default_factory=list)
    info: File | None = None

    @property
    def is_recording(self) -> bool:
        """A profiler_info alone is not: other formats have one too."""
        return bool(self.files or self.analyse or self.traces)

    @property
    def split(self) -> tuple[File, Pipeline] | None:
        return next((self.analyse[mode] for mode in (*_MODES, *self.analyse) if mode in self.analyse), None)


@dataclass(frozen=True)
class MindInsight:
    name: str = "mindinsight"

    def find(self, tree: Tree) -> Iterator[Part]:
        found = _collect(tree)
        if not found:
            return
        places = find_places(tree, found)
        for members in _jobs(found, places):
            yield from self._parts(members, places)

    def _parts(self, members: dict[Owner, _Found], places: Mapping[Owner, Place]) -> Iterator[Part]:
        # A dozen modules, for recordings that are really of this format.
        from paceline.formats.mindinsight_sections import Rank, sections_of

        infos = {owner: _read_info(files.info) for owner, files in members.items()}
        pipeline = agreed(files.split[1] if files.split else infos[owner].pipeline for owner, files in members.items())
        near = _neighbours(members, places, pipeline)
        said: set[str | None] = {None}
        for owner, files in sorted(members.items(), key=lambda member: places[member[0]].rank):
            place = places[owner]
            stage = stage_of(place.rank, stages=pipeline.stages, ranks=pipeline.ranks) if pipeline else None
            rank = Rank(
                owner.key, place, stage, near[place.rank], files.files,
                files.split[0] if files.split else None, tuple(files.traces),
            )  # fmt: skip
            # What holds for a whole job is said once, not for each of its ranks.
            notes = () if place.note in said else (f"{owner.directory}: {place.note}",)
            said.add(place.note)
            recorded = infos[owner].recorded or _newest(files)
            yield Part(self.name, place.rank, owner.directory, tuple(sections_of(rank)), recorded, notes=notes)


READER = MindInsight()


# -- files ------------------------------------------------------------------------------------------------------------


def _collect(tree: Tree) -> dict[Owner, _Found]:
    found: dict[Owner, _Found] = defaultdict(_Found)
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
            found[_owner_of_traces(directory, traces, found)].traces += traces
    return {owner: files for owner, files in found.items() if files.is_recording}


def _collect_directory(directory: str, files: Mapping[str, File], found: dict[Owner, _Found]) -> None:
    for name, file in files.items():
        if match := _NUMBERED.fullmatch(name):
            pattern = f"{match['stem']}_#{match['rest']}"
            owner = Owner(directory, int(match["key"]))
            if pattern in KNOWN:
                found[owner].files[pattern] = file
                continue
            if pattern == _INFO:
                found[owner].info = file
                continue
        if match := _ANALYSE.fullmatch(name):
            pipeline = Pipeline(int(match["stages"]), int(match["ranks"]))
            found[Owner(directory, int(match["key"]))].analyse[match["mode"]] = (file, pipeline)


def _owner_of_traces(directory: str, traces: list[File], found: Mapping[Owner, _Found]) -> Owner:
    """By the number in the directory's name; without one the only number beside it, or the one the trace tells."""
    base, name = parent_of(directory), directory.rpartition("/")[2]
    if number := name.removeprefix("hccl_info").removeprefix("_"):
        return Owner(base, int(number))
    beside = {owner for owner, files in found.items() if owner.directory == base and files.is_recording}
    if len(beside) == 1:
        return beside.pop()
    above = parent_of(base).rpartition("/")[2] if base else ""
    if not beside and above.isdecimal():
        return Owner(base, int(above))  # {rank}/profiler/hccl_info
    return Owner(base, _device_of(traces[0]))


def _device_of(trace: File) -> int:
    try:
        with trace.path.open("rb") as file:
            device = _DEVICE.search(file.read(4096))
    except OSError:
        device = None  # the section that reads the traces says so
    return int(device[1]) if device else 0


def _iteration(file: File) -> int:
    match = _TRACE.fullmatch(file.name)
    return int(match[1]) if match else 0


def _newest(files: _Found) -> str:
    """When the last file was written, where nothing better tells when a rank was recorded."""
    all_of = [*files.files.values(), *(file for file, _ in files.analyse.values()), *files.traces[:1]]
    newest = max(file.mtime_ns for file in all_of)
    return datetime.fromtimestamp(newest / 1e9, tz=UTC).strftime("%Y%m%d%H%M%S")


# -- jobs -------------------------------------------------------------------------------------------------------------


def _jobs(found: dict[Owner, _Found], places: Mapping[Owner, Place]) -> Iterable[dict[Owner, _Found]]:
    """Everything is one job (hosts may have a directory each), unless some rank was recorded twice."""
    if len({places[owner].rank for owner in found}) == len(found):
        return [found]
    jobs: dict[str, dict[Owner, _Found]] = defaultdict(dict)
    for owner, files in found.items():
        jobs[_job_of(owner.directory)][owner] = files
    return jobs.values()


def _job_of(directory: str) -> str:
    """The directory that holds all ranks of a job, whichever layout it has."""
    parts = directory.split("/") if directory else []
    if CLUSTER in parts:
        return "/".join(parts[: parts.index(CLUSTER)])
    if len(parts) > 1 and parts[-1].startswith("profiler") and parts[-2].isdecimal():
        return "/".join(parts[:-2])
    return directory


def _neighbours(
    members: Mapping[Owner, _Found], places: Mapping[Owner, Place], pipeline: Pipeline | None
) -> dict[int, Neighbours]:
    """Files are opened only where their answer matters."""
    if pipeline is None:
        return neighbours(None, {places[owner].rank: None for owner in members})
    ends = {}
    for owner, files in members.items():
        raw = files.files.get("hccl_raw_#.csv")
        first = files.traces[0].path if files.traces else None
        ends[places[owner].rank] = read_link_ends(raw.path if raw else None, first)
    return neighbours(pipeline, ends)


class _Info(msgspec.Struct):
    """profiler_info: what we use of it; 2.0.0 called the stages pipeline_stage_num."""

    rank_size: int | str | None = None
    stage_num: int | str | None = None
    pipeline_stage_num: int | str | None = None
    profiling_stop_time: str = ""

    @property
    def pipeline(self) -> Pipeline | None:
        stages = self.stage_num if self.stage_num is not None else self.pipeline_stage_num
        known = str(stages).isdecimal() and str(self.rank_size).isdecimal()
        return Pipeline(int(stages or 0), int(self.rank_size or 0)) if known else None

    @property
    def recorded(self) -> str:
        return re.sub(r"\D", "", self.profiling_stop_time)


def _read_info(file: File | None) -> _Info:
    if file is None or file.size > 1 << 20:
        return _Info()
    try:
        return msgspec.json.decode(file.path.read_bytes(), type=_Info)
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _Info()  # only a convenience: stages and time are found without it
