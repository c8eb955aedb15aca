"""Sections of one rank in MindInsight trees: which files are read together, by which function, into which tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paceline.formats.base import RecordingSection, Sink
from paceline.formats.hccl.execution import RankCommunicators
from paceline.formats.minddata.pipeline import minddata_sections
from paceline.formats.mindinsight.collectives import CollectiveFiles, read_collectives
from paceline.formats.mindinsight.flops import read_flops_operators, read_flops_summary
from paceline.formats.mindinsight.kernels import KernelFiles, read_kernels
from paceline.formats.mindinsight.memory import MemoryFiles, read_memory
from paceline.formats.mindinsight.operators import (
    read_aicore_details,
    read_aicore_types,
    read_aicpu,
    read_compute_times,
    read_gpu_operators,
)
from paceline.formats.mindinsight.rank_hosts import RankPlacement
from paceline.formats.mindinsight.step_split import StepFiles, read_steps
from paceline.formats.mindinsight.timeline import TimelineFiles, read_timeline
from paceline.formats.mindspore_cpu.sections import cpu_sections
from paceline.storage.file_tree import File

STEP_TRACE = "step_trace_raw_#_detail_time.csv"
FRAMEWORK = "framework_raw_#.csv"
KERNELS = "output_timeline_data_#.txt"
TIMELINE = "ascend_timeline_display_#.json"


@dataclass(frozen=True)
class RankFiles:
    """All files of one rank; `files` by name, with # in place of `key`."""

    key: int
    placement: RankPlacement
    stage: int | None
    communicators: RankCommunicators
    files: Mapping[str, File]
    split: File | None
    traces: tuple[File, ...]


def sections_of(rank: RankFiles) -> Iterator[RecordingSection]:
    yield _identity(rank)
    yield from _steps(rank)
    yield from _collectives(rank)
    yield from _memory(rank)
    yield from _flops(rank)
    yield from _operators(rank)
    yield from _kernels(rank)
    yield from _timelines(rank)
    named = {file.name: file for file in rank.files.values()}
    yield from minddata_sections(named, rank.key)
    yield from cpu_sections(named, rank.key)


def _section(
    name: str, tables: set[str], files: tuple[File | None, ...], read: Callable[[Sink], None]
) -> RecordingSection:
    return RecordingSection(name, frozenset(tables), tuple(file for file in files if file), read)


def _path(file: File | None) -> Path | None:
    return file.path if file else None


# -- identity ---------------------------------------------------------------------------------------------------------


def _identity(rank: RankFiles) -> RecordingSection:
    files = (*rank.placement.table, rank.split, rank.files.get("hccl_raw_#.csv"), *rank.traces[:1])
    read = partial(_read_identity, rank.placement, rank.stage, rank.communicators)
    return _section("identity", {"ranks", "groups"}, files, read)


def _read_identity(placement: RankPlacement, stage: int | None, communicators: RankCommunicators, sink: Sink) -> None:
    sink.add(
        "ranks",
        {
            "host": [placement.host],
            "device": [placement.device],
            "stage": [stage],
            "note": [placement.note and str(placement.note)],
        },
    )
    if communicators.group is not None:
        sink.add("groups", {"group": [communicators.group], "kind": ["other"], "index": [communicators.index]})
    if communicators.peer is not None:
        sink.add(
            "groups",
            {"group": [communicators.pair], "kind": ["pp"], "index": [int(communicators.peer < communicators.rank)]},
        )


# -- tables -----------------------------------------------------------------------------------------------------------


def _steps(rank: RankFiles) -> Iterator[RecordingSection]:
    trace = rank.files.get(STEP_TRACE)
    if trace or rank.split:
        kernels = rank.files.get(KERNELS) or rank.files.get(TIMELINE)
        files = StepFiles(_path(trace), _path(rank.split), _kernel_files(rank))
        yield _section("steps", {"steps"}, (trace, rank.split, kernels), partial(read_steps, files))


def _collectives(rank: RankFiles) -> Iterator[RecordingSection]:
    trace, raw = rank.files.get(STEP_TRACE), rank.files.get("hccl_raw_#.csv")
    if trace or raw or rank.traces:
        raw = None if rank.traces else raw
        files = CollectiveFiles(_path(trace), _path(raw), tuple(file.path for file in rank.traces))
        tables = {"collectives"} | ({"transfers"} if raw or rank.traces else set())
        tables |= {"packets"} if rank.traces else set()
        # Errors are reported with the section's first file.
        yield _section(
            "collectives", tables, (raw, *rank.traces, trace), partial(read_collectives, files, rank.communicators)
        )


def _memory(rank: RankFiles) -> Iterator[RecordingSection]:
    names = ("memory_usage_#.pb", "memory_usage_summary_#.json", "memory_usage_details_#.json")
    plan, summary, details = (rank.files.get(name) for name in names)
    if plan or summary or details:
        files = MemoryFiles(_path(plan), _path(summary), _path(details))
        tables = {"ranks_memory"} | ({"memory"} if plan or details else set())
        yield _section("memory", tables, (summary, details, plan), partial(read_memory, files))


def _flops(rank: RankFiles) -> Iterator[RecordingSection]:
    if summary := rank.files.get("flops_summary_#.json"):
        yield _section("flops", {"flops"}, (summary,), partial(read_flops_summary, summary.path))
    if operators := rank.files.get("flops_#.txt"):
        yield _section("flops of operators", {"flops"}, (operators,), partial(read_flops_operators, operators.path))


def _operators(rank: RankFiles) -> Iterator[RecordingSection]:
    framework = rank.files.get(FRAMEWORK)
    descriptions = _path(framework)
    if types := rank.files.get("aicore_intermediate_#_type.csv"):
        yield _section("operator types", {"operators"}, (types,), partial(read_aicore_types, types.path))
    if details := rank.files.get("aicore_intermediate_#_detail.csv"):
        read = partial(read_aicore_details, details.path, descriptions)
        yield _section("operators", {"operators"}, (details, framework), read)
    elif times := rank.files.get("output_op_compute_time_#.txt"):
        read = partial(read_compute_times, times.path, descriptions)
        yield _section("operators", {"operators"}, (times, framework), read)
    for level in ("type", "detail"):
        if gpu := rank.files.get(f"gpu_op_{level}_info_#.csv"):
            read_gpu = partial(read_gpu_operators, gpu.path, "type" if level == "type" else "name")
            yield _section(f"GPU operators by {level}", {"operators"}, (gpu,), read_gpu)


def _kernels(rank: RankFiles) -> Iterator[RecordingSection]:
    framework, trace = rank.files.get(FRAMEWORK), rank.files.get(STEP_TRACE)
    if files := _kernel_files(rank):
        kernels = rank.files.get(KERNELS) or rank.files.get(TIMELINE)
        yield _section("kernels", {"kernels"}, (kernels, framework, trace), partial(read_kernels, files))
    if aicpu := rank.files.get("aicpu_intermediate_#.csv"):
        yield _section(
            "AI CPU", {"operators", "kernels"}, (aicpu, trace), partial(read_aicpu, aicpu.path, _path(trace))
        )


def _kernel_files(rank: RankFiles) -> KernelFiles | TimelineFiles | None:
    trace = _path(rank.files.get(STEP_TRACE))
    if kernels := rank.files.get(KERNELS):
        return KernelFiles(kernels.path, _path(rank.files.get(FRAMEWORK)), trace)
    timeline = rank.files.get(TIMELINE)
    ai_cpu_is_known = "aicpu_intermediate_#.csv" in rank.files
    return TimelineFiles(timeline.path, trace, None, ai_cpu_is_known) if timeline else None


def _timelines(rank: RankFiles) -> Iterator[RecordingSection]:
    trace, kernels = rank.files.get(STEP_TRACE), rank.files.get(KERNELS)
    for name in (TIMELINE, "gpu_timeline_display_#.json", "timeline_display_#.json"):
        if timeline := rank.files.get(name):
            files = TimelineFiles(timeline.path, _path(trace), _path(kernels))
            yield _section("timeline", {"events"}, (timeline, trace, kernels), partial(read_timeline, files))
