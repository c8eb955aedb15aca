"""MindData, the dataset pipeline of MindSpore, as recorded for one rank.

Operators (input_pipeline) are read from `pipeline_profiling_{r}.json`, `minddata_pipeline_raw_{r}.csv` or
`minddata_pipeline_summary_{r}.json|csv`, the first that exists; CPU use from `minddata_cpu_utilization_{r}.json` or the
summary; `dataset.csv` adds times per operation and stage. Batches (input_steps) are in the queue files.

Operator types lose their old suffix: "BatchOp" and "Batch" are the same operator.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import msgspec

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import RecordingSection, Sink
from paceline.formats.minddata.queues import queue_sections
from paceline.storage.file_tree import File

T = TypeVar("T")

MAX_BYTES = 256 << 20
"""These files have a few numbers per operator and sample; a larger file is refused."""


def minddata_sections(files: Mapping[str, File], rank: int) -> list[RecordingSection]:
    """Sections of all MindData files of one rank; files of other ranks are ignored."""
    sections = []
    pipeline = _pipeline_files(files, rank)
    if present := pipeline.present:
        read = partial(_read_pipeline, pipeline)
        sections.append(RecordingSection("minddata pipeline", frozenset({"input_pipeline"}), present, read))
    if dataset := files.get("dataset.csv"):
        read_dataset = partial(_read_dataset, dataset)
        sections.append(
            RecordingSection("minddata operations", frozenset({"input_pipeline"}), (dataset,), read_dataset)
        )
    return sections + queue_sections(files, rank)


@dataclass(frozen=True)
class _PipelineFiles:
    operators: File | None
    summary: File | None
    cpu: File | None

    @property
    def present(self) -> tuple[File, ...]:
        return tuple(file for file in (self.operators, self.summary, self.cpu) if file)


def _pipeline_files(files: Mapping[str, File], rank: int) -> _PipelineFiles:
    return _PipelineFiles(
        operators=_first(files, f"pipeline_profiling_{rank}.json", f"minddata_pipeline_raw_{rank}.csv"),
        summary=_first(files, f"minddata_pipeline_summary_{rank}.json", f"minddata_pipeline_summary_{rank}.csv"),
        cpu=_first(files, f"minddata_cpu_utilization_{rank}.json"),
    )


def _first(files: Mapping[str, File], *names: str) -> File | None:
    return next((files[name] for name in names if name in files), None)


@dataclass(frozen=True)
class _Operator:
    """A row of input_pipeline."""

    op_id: int
    op: str | None = None
    parent: int | None = None
    workers: int | None = None
    queue_size: float | None = None
    queue_capacity: int | None = None
    queue_empty: float | None = None
    cpu: float | None = None


def _read_pipeline(files: _PipelineFiles, sink: Sink) -> None:
    operators: dict[int, _Operator] = {}
    if files.operators:
        operators = {operator.op_id: operator for operator in _read_operators(files.operators)}
    # These files only add numbers: the operators are kept if one of them is damaged.
    for file, read in ((files.cpu, _read_cpu), (files.summary, _read_summary)):
        if file is None:
            continue
        try:
            _fill(operators, read(file))
        except FormatError as error:
            if not operators:
                raise
            sink.warn(error.said, file=file.path, line=error.line)
    _add_operators(operators.values(), sink)


def _fill(operators: dict[int, _Operator], more: Iterable[_Operator]) -> None:
    """Add values that are still unknown; the more exact file was read first."""
    for other in more:
        known = operators.get(other.op_id, _Operator(other.op_id))
        gaps = {
            name: getattr(other, name)
            for name in _Operator.__dataclass_fields__
            if getattr(known, name) is None and getattr(other, name) is not None
        }
        operators[other.op_id] = replace(known, **gaps)


def _add_operators(operators: Iterable[_Operator], sink: Sink) -> None:
    ordered = sorted(operators, key=lambda operator: operator.op_id)
    if ordered:
        columns = {name: [getattr(op, name) for op in ordered] for name in _Operator.__dataclass_fields__}
        sink.add("input_pipeline", columns)


# -- pipeline_profiling_{r}.json and minddata_pipeline_raw_{r}.csv ----------------------------------------------------


class _Queue(msgspec.Struct):
    size: list[float] = []
    length: int | None = None


class _Metrics(msgspec.Struct):
    output_queue: _Queue | None = None


class _RawOperator(msgspec.Struct):
    op_id: int
    op_type: str | None = None
    num_workers: int | None = None
    metrics: _Metrics | None = None
    children: list[int] | None = None


class _RawPipeline(msgspec.Struct):
    op_info: list[_RawOperator]


def _read_operators(file: File) -> list[_Operator]:
    return _operators_from_json(file) if file.name.endswith(".json") else _operators_from_csv(file)


def _operators_from_json(file: File) -> list[_Operator]:
    raw = _decode(file, _RawPipeline).op_info
    parents = {child: operator.op_id for operator in raw for child in operator.children or ()}
    return [_operator_from_json(operator, parents.get(operator.op_id)) for operator in raw]


def _operator_from_json(raw: _RawOperator, parent: int | None) -> _Operator:
    queue = (raw.metrics.output_queue if raw.metrics else None) or _Queue()
    return _Operator(
        op_id=raw.op_id,
        op=_plain(raw.op_type),
        parent=parent,
        workers=raw.num_workers,
        queue_size=_mean(queue.size),
        queue_capacity=queue.length,
        queue_empty=_empty(queue.size),
    )


def _operators_from_csv(file: File) -> list[_Operator]:
    rows = csv.DictReader(io.StringIO(_text(file)))
    operators = []
    for row in rows:
        try:
            operators.append(_operator_from_row(row))
        except (ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
            raise FormatError(message("not_pipeline_op", error=error), file=file.path, line=rows.line_num) from error
    return operators


def _operator_from_row(row: dict[str, str]) -> _Operator:
    sizes = msgspec.json.decode(row["output_queue_size"] or "[]", type=list[float])
    return _Operator(
        op_id=int(row["op_id"]),
        op=_plain(row["op_type"]),
        parent=_whole(row["parent_id"]),
        workers=_whole(row["num_workers"]),
        queue_size=_mean(sizes),
        queue_capacity=_whole(row["output_queue_length"]),
        queue_empty=_empty(sizes),
    )


# -- minddata_cpu_utilization_{r}.json --------------------------------------------------------------------------------


class _CpuMetrics(msgspec.Struct):
    user_utilization: list[float] = []
    sys_utilization: list[float] = []


class _CpuOperator(msgspec.Struct):
    op_id: int
    metrics: _CpuMetrics | None = None


class _CpuFile(msgspec.Struct):
    op_info: list[_CpuOperator]


def _read_cpu(file: File) -> list[_Operator]:
    """Mean of user + system time in % of one core (MindSpore multiplies by the number of cores)."""
    # op_id -1 is the rest of the process, not an operator.
    return [
        _Operator(raw.op_id, cpu=_mean_cpu(raw.metrics))
        for raw in _decode(file, _CpuFile).op_info
        if raw.op_id >= 0 and raw.metrics
    ]


def _mean_cpu(metrics: _CpuMetrics) -> float | None:
    parts = [mean for mean in (_mean(metrics.user_utilization), _mean(metrics.sys_utilization)) if mean is not None]
    return sum(parts) if parts else None


# -- minddata_pipeline_summary_{r}.json|csv ---------------------------------------------------------------------------


class _Summary(msgspec.Struct):
    """One list per property, one entry per operator; -1 means "none"."""

    op_ids: list[int]
    op_names: list[str] = []
    num_workers: list[int] = []
    queue_average_size: list[float] = []
    queue_empty_freq_pct: list[float] = []
    parent_id: list[int] = []
    avg_cpu_pct: list[float] = []


def _read_summary(file: File) -> list[_Operator]:
    summary = _decode(file, _Summary) if file.name.endswith(".json") else _summary_from_csv(file)
    return [_operator_from_summary(summary, index) for index in range(len(summary.op_ids))]


def _summary_from_csv(file: File) -> _Summary:
    """The CSV is the transposed JSON: each line is a key and its values."""
    lines = {row[0]: row[1:] for row in csv.reader(io.StringIO(_text(file))) if row}
    known = {name: lines[name] for name in _Summary.__struct_fields__ if name in lines}
    try:
        return msgspec.convert(known, _Summary, strict=False)
    except msgspec.ValidationError as error:
        raise FormatError(message("not_pipeline", error=error), file=file.path) from error


def _operator_from_summary(summary: _Summary, index: int) -> _Operator:
    empty = _at(summary.queue_empty_freq_pct, index)
    parent = _at(summary.parent_id, index)
    return _Operator(
        op_id=summary.op_ids[index],
        op=_plain(summary.op_names[index]) if index < len(summary.op_names) else None,
        parent=None if parent is None else int(parent),
        workers=summary.num_workers[index] if index < len(summary.num_workers) else None,
        queue_size=_at(summary.queue_average_size, index),
        queue_empty=None if empty is None else empty / 100,
        cpu=_at(summary.avg_cpu_pct, index),
    )


def _at(values: list[float] | list[int], index: int) -> float | None:
    return values[index] if index < len(values) and values[index] >= 0 else None


# -- dataset.csv ------------------------------------------------------------------------------------------------------


def _read_dataset(file: File, sink: Sink) -> None:
    """`Operation,Stage,Occurrences,Avg. time (us),Custom Info`; MindSpore's guide writes "Avg.time(us)"."""
    rows = csv.DictReader(io.StringIO(_text(file)))
    taken = []
    for row in rows:
        plain = {(name or "").replace(" ", "").lower(): value for name, value in row.items()}
        try:
            count = int(plain["occurrences"])
            taken.append((plain["operation"], plain["stage"], count, round(float(plain["avg.time(us)"]) * 1e3 * count)))
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise FormatError(message("not_dataset", error=error), file=file.path, line=rows.line_num) from error
    if taken:
        operations, stages, counts, times = map(list, zip(*taken, strict=True))
        sink.add("input_pipeline", {"op": operations, "stage": stages, "count": counts, "time": times})


# -- values and files -------------------------------------------------------------------------------------------------


def _text(file: File) -> str:
    return _bytes(file).decode("utf-8-sig")


def _bytes(file: File) -> bytes:
    if file.size > MAX_BYTES:
        raise FormatError(message("larger_refused", size=f"{MAX_BYTES >> 20} MiB"), file=file.path)
    return file.path.read_bytes()


def _decode(file: File, type: type[T]) -> T:
    try:
        return msgspec.json.decode(_bytes(file), type=type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(message("not_named_brackets", error=error), file=file.path) from error


def _plain(op_type: str | None) -> str | None:
    return op_type.removesuffix("Op") if op_type else None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _empty(sizes: list[float]) -> float | None:
    return sum(size == 0 for size in sizes) / len(sizes) if sizes else None


def _whole(text: str | None) -> int | None:
    return int(float(text)) if text and text.strip() else None
