"""Reader of `*_ascend_pt` and `*_ascend_ms` text results: one recording per profile directory.

A profile directory has an ASCEND_PROFILER_OUTPUT folder, or the result files themselves, or (MindSpore on CPU)
FRAMEWORK/cpu_* files. Its name does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from paceline.core.message import Sentence, message, said_at
from paceline.formats.ascend_text import FORMAT
from paceline.formats.ascend_text.communication_json import read_collectives, read_matrix, read_packets
from paceline.formats.ascend_text.csv_files import (
    read_api_statistic,
    read_data_preprocess,
    read_kernels,
    read_l2_cache,
    read_memory,
    read_op_statistic,
)
from paceline.formats.ascend_text.profiler_metadata import Identity, read_identity
from paceline.formats.ascend_text.trace_view import read_steps, read_trace_counters, read_trace_view
from paceline.formats.base import RankRecording, RecordingSection
from paceline.formats.minddata.pipeline import minddata_sections
from paceline.formats.mindspore_cpu.sections import cpu_sections, supplies_steps
from paceline.formats.rank_claims import rank_in_directory, strangers_by_directory
from paceline.formats.recorder.reader import has_recorder_log
from paceline.storage.file_tree import File, Tree, parent_of

_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_MARKERS = (
    "step_trace_time.csv",
    "kernel_details.csv",
    "communication.json",
    "communication_matrix.json",
    "trace_view.json",
    "op_statistic.csv",
    "operator_memory.csv",
    "memory_record.csv",
)
_CPU_FILE = re.compile(r"cpu_(?:op_execute_timestamp|op_detail_info|op_type_info|ms_memory_record)_(\d+)\.\w+$")
_WORKER = re.compile(r"^(?P<worker>(?P<host>.+)_\d+)_(?P<time>\d{14,17})_ascend_(?:pt|ms)$")
_RANKED = re.compile(r"^(?:profiler_info|minddata_pipeline_raw|minddata_pipeline_summary)_(\d+)\.")
_TORCH_MEGABYTE, _MINDSPORE_MEGABYTE = 1 << 20, 1_024_000


@dataclass(frozen=True)
class AscendTextReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        found = (_profile_of(tree, directory) for directory in tree.directories)
        # Exports of a recorder repeat its log, which also names their job.
        profiles = sorted({profile for profile in found if profile is not None and not has_recorder_log(tree, profile)})
        ranks = [_rank_of(tree, profile) for profile in profiles]
        unused = iter(number for number in range(len(profiles)) if number not in ranks)
        strangers = strangers_by_directory(profiles, ranks)
        for place, (profile, rank) in enumerate(zip(profiles, ranks, strict=True)):
            conflicts = _conflicts(tree, profile, strangers.get(place))
            yield self._recording(
                tree,
                profile,
                next(unused) if rank is None else rank,
                assumed=rank is None,
                conflicts=conflicts,
            )

    def _recording(
        self, tree: Tree, profile: str, rank: int, *, assumed: bool, conflicts: tuple[Sentence, ...]
    ) -> RankRecording:
        files = _files_of(tree, profile)
        name = profile.rpartition("/")[2]
        worker = _WORKER.match(name)
        return RankRecording(
            format=self.name,
            rank=rank,
            root=profile,
            sections=tuple(_sections(tree, profile, files, rank)),
            recorded=worker["time"] if worker else "",
            job=f"{parent_of(profile)}/{worker['worker']}" if worker else "",
            notes=(said_at(profile or ".", message("rank_assumed", n=rank)),) if assumed else (),
            rank_assumed=assumed,
            conflicts=conflicts,
        )


READER = AscendTextReader()


def _profile_of(tree: Tree, directory: str) -> str | None:
    """The profile that a directory belongs to; None if it belongs to none."""
    if any(part.startswith("PROF_") for part in directory.split("/")):
        return None
    names = tree.directories[directory]
    base = directory.rpartition("/")[2]
    if base == _OUTPUT:
        return parent_of(directory) if any(_is_text_result(name) for name in names) else None
    if base == "FRAMEWORK":
        return parent_of(directory) if any(_CPU_FILE.match(name) for name in names) else None
    return directory if any(marker in names for marker in _MARKERS) else None


def _is_text_result(name: str) -> bool:
    return name in _MARKERS or name.endswith((".csv", ".json"))


def _files_of(tree: Tree, profile: str) -> dict[str, File]:
    """Result files of a profile by name."""
    inside = f"{profile}/" if profile else ""
    return {
        **tree.directories.get(f"{inside}FRAMEWORK", {}),
        **tree.directories.get(profile, {}),
        **tree.directories.get(f"{inside}{_OUTPUT}", {}),
    }


def _rank_of(tree: Tree, profile: str) -> int | None:
    names = sorted(_files_of(tree, profile))
    for pattern in (_RANKED, _CPU_FILE):
        for name in names:
            if found := pattern.match(name):
                return int(found[1])
    return rank_in_directory(profile)


def _conflicts(tree: Tree, profile: str, by_directory: int | None) -> tuple[Sentence, ...]:
    """What says that a profile is of several ranks, or of another."""
    named = sorted({int(found[1]) for name in _files_of(tree, profile) if (found := _RANKED.match(name))})
    mixed = [message("files_named", list=", ".join(map(str, named)))] if len(named) > 1 else []
    return (*mixed, *(() if by_directory is None else (message("directory_named", n=by_directory),)))


def _sections(tree: Tree, profile: str, files: dict[str, File], rank: int) -> Iterator[RecordingSection]:
    yield _identity(tree, profile, files, rank)
    steps, trace = files.get("step_trace_time.csv"), files.get("trace_view.json")
    if (steps or trace) and not supplies_steps(files, rank):
        read_split = partial(read_steps, steps.path if steps else None, trace.path if trace else None)
        searched = 0.02 if steps else 1.0
        yield RecordingSection("steps", frozenset({"steps"}), _present(steps, trace), read_split, parsed=searched)
    if trace:
        read_samples = partial(read_trace_counters, trace.path)
        yield RecordingSection("trace_view.json counters", frozenset({"counters"}), (trace,), read_samples, parsed=0.02)
    for name, tables, read in _SIMPLE:
        if file := files.get(name):
            yield RecordingSection(f"{name} {tables[0]}", frozenset(tables), (file,), partial(read, file.path))
    memory = {name: file for name, file in files.items() if name in _MEMORY}
    if memory:
        megabyte = _MINDSPORE_MEGABYTE if profile.endswith("_ascend_ms") else _TORCH_MEGABYTE
        paths = {name: file.path for name, file in memory.items()}
        yield RecordingSection(
            "memory",
            frozenset({"memory", "ranks_memory"}),
            tuple(memory.values()),
            partial(read_memory, paths, megabyte),
        )
    yield from minddata_sections(files, rank)
    yield from cpu_sections(files, rank)


_MEMORY = ("memory_record.csv", "npu_module_mem.csv", "operator_memory.csv")
_SIMPLE = (
    ("kernel_details.csv", ("kernels",), read_kernels),
    ("communication.json", ("collectives",), read_collectives),
    ("communication.json", ("packets",), read_packets),
    ("communication_matrix.json", ("transfers",), read_matrix),
    ("op_statistic.csv", ("operators",), read_op_statistic),
    ("api_statistic.csv", ("host_calls",), read_api_statistic),
    ("l2_cache.csv", ("l2_cache",), read_l2_cache),
    ("data_preprocess.csv", ("kernels",), read_data_preprocess),
    ("trace_view.json", ("events", "flows"), read_trace_view),
)


def _identity(tree: Tree, profile: str, files: dict[str, File], rank: int) -> RecordingSection:
    info = next((files[name] for name in sorted(files) if name.startswith("profiler_info")), None)
    metadata = files.get("profiler_metadata.json")
    worker = _WORKER.match(profile.rpartition("/")[2])
    identity = Identity(
        rank=rank,
        host=worker["host"] if worker else None,
        device=_device_of(tree, profile),
        info=info.path if info else None,
        metadata=metadata.path if metadata else None,
    )
    return RecordingSection(
        "identity", frozenset({"ranks", "groups"}), _present(info, metadata), partial(read_identity, identity)
    )


def _device_of(tree: Tree, profile: str) -> int | None:
    """The number of the PROF_*/device_N folder in the profile."""
    prefix = f"{profile}/PROF_" if profile else "PROF_"
    devices = {
        int(found[1])
        for directory in tree.directories_starting(prefix)
        if (found := re.search(r"/device_(\d+)(?:/|$)", directory))
    }
    return devices.pop() if len(devices) == 1 else None


def _present(*files: File | None) -> tuple[File, ...]:
    return tuple(file for file in files if file is not None)
