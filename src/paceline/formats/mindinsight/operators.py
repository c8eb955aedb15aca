"""Operators of one rank in MindInsight trees; times are ms, on GPU µs.

aicore_intermediate_{id}_type.csv    total per operator type
aicore_intermediate_{id}_detail.csv  mean and count per operator (older versions: mean of one step)
output_op_compute_time_{id}.txt      the same as text, used if the file above is missing
aicpu_intermediate_{id}.csv          every AI CPU operator, with begin and end in µs
gpu_op_{type,detail}_info_{id}.csv   totals on GPU
framework_raw_{id}.csv               types, shapes and data types of the operators above
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import Sink
from paceline.formats.csv_files import csv_lines, read_text
from paceline.formats.mindinsight.steps import StepTrace, TraceStep, read_step_trace
from paceline.formats.units import number, scaled, whole

_MILLISECOND, _MICROSECOND = 1e6, 1e3
_NUMBERED = re.compile(r"-op\d+(_\d+)?$")


def type_in_name(name: str) -> str:
    """
    >>> type_in_name("Default/network/conv1-Conv2d/Cast-op12")
    'Cast'
    """
    return _NUMBERED.sub("", name.rpartition("/")[2])


def read_aicore_types(path: Path, sink: Sink) -> None:
    kept = []
    for _, row in csv_lines(path, sink):
        name = _first(row, "kernel_type", "op_type")
        time = scaled(_first(row, "total_time", "execution_time"), _MILLISECOND)
        if name and time is not None:
            kept.append((name, scaled(row.get("execution_frequency"), 1), time))
    _add_sums("type", kept, [name for name, _, _ in kept], "AI_CORE", sink)


def read_aicore_details(path: Path, framework: Path | None, sink: Sink) -> None:
    """time = mean · count; without a recorded count it is the time of one step."""
    kept = []
    for _, row in csv_lines(path, sink):
        name = _first(row, "full_kernel_name", "full_op_name", "op_full_name", "full_kernel_time")
        mean, count = number(row.get("execution_time")), scaled(row.get("execution_frequency"), 1)
        time = None if mean is None else whole(mean * (1 if count is None else count) * _MILLISECOND)
        if name and time is not None:
            kept.append((name, count, time))
    _add_named(kept, framework, sink)


def read_compute_times(path: Path, framework: Path | None, sink: Sink) -> None:
    """Lines `name mean_ms stream` below a heading."""
    words = (line.split() for line in read_text(path).splitlines())
    times = ((row[0], scaled(row[1], _MILLISECOND)) for row in words if len(row) == 3)
    _add_named([(name, None, time) for name, time in times if time is not None], framework, sink)


def _add_named(kept: list[tuple[str, int | None, int]], framework: Path | None, sink: Sink) -> None:
    known = {each.name: each.type for each in read_framework(framework, sink)} if framework else {}
    _add_sums("name", kept, [known.get(name) or type_in_name(name) for name, _, _ in kept], "AI_CORE", sink)


def read_gpu_operators(path: Path, level: str, sink: Sink) -> None:
    """Column names may end in their unit: total_time(us)."""
    kept, types = [], []
    for _, row in csv_lines(path, sink):
        row = {name.partition("(")[0]: value for name, value in row.items()}
        name = row.get("op_type" if level == "type" else "op_full_name")
        time = scaled(_first(row, "total_time", "op_total_time"), _MICROSECOND)
        if name and time is not None:
            kept.append((name, scaled(_first(row, "type_occurrences", "op_occurrences"), 1), time))
            types.append(row.get("op_type") or name)
    _add_sums(level, kept, types, "GPU", sink)


def _add_sums(
    level: str, kept: Sequence[tuple[str, int | None, int]], types: Sequence[str], core: str, sink: Sink
) -> None:
    sink.add(
        "operators",
        {
            "level": [level] * len(kept),
            "name": [name for name, _, _ in kept],
            "type": list(types),
            "core": [core] * len(kept),
            "count": [count for _, count, _ in kept],
            "time": [time for _, _, time in kept],
        },
    )


def _first(row: dict[str, str], *names: str) -> str | None:
    return next((row[name] for name in names if name in row), None)


# -- AI CPU -----------------------------------------------------------------------------------------------------------


def read_aicpu(path: Path, step_trace: Path | None, sink: Sink) -> None:
    trace = StepTrace(steps_of_trace(step_trace, sink))
    times: dict[str, list[int]] = {}
    kernels = []
    for _, row in csv_lines(path, sink):
        name = _first(row, "kernel_type", "node_type_name", "op_type")
        time = scaled(_first(row, "total_time", "total_time(ms)"), _MILLISECOND)
        start, end = scaled(row.get("run_start"), _MICROSECOND), scaled(row.get("run_end"), _MICROSECOND)
        if not name or time is None:
            continue
        times.setdefault(name.partition("-")[0], []).append(time)
        if start is not None and end is not None and end >= start:
            kernels.append((name, start, end - start))
    sink.add(
        "operators",
        {
            "level": ["type"] * len(times),
            "name": list(times),
            "type": list(times),
            "core": ["AI_CPU"] * len(times),
            "count": [len(all_of) for all_of in times.values()],
            "time": [sum(all_of) for all_of in times.values()],
            "min": [min(all_of) for all_of in times.values()],
            "max": [max(all_of) for all_of in times.values()],
        },
    )
    sink.add(
        "kernels",
        {
            "name": [name for name, _, _ in kernels],
            "type": [name.partition("-")[0] for name, _, _ in kernels],
            "core": ["AI_CPU"] * len(kernels),
            "start": [start for _, start, _ in kernels],
            "step": [trace.step_at(start) for _, start, _ in kernels],
            "duration": [duration for _, _, duration in kernels],
        },
    )


# -- descriptions of operators by the framework -----------------------------------------------------------------------


@dataclass(frozen=True)
class OperatorDescription:
    name: str
    type: str
    input_shapes: str
    input_types: str
    output_shapes: str


class _Operand(msgspec.Struct):
    shape: str | list[int | str] = ""
    data_type: str = ""


_OPERANDS = msgspec.json.Decoder(dict[str, _Operand])


def read_framework(path: Path, sink: Sink) -> list[OperatorDescription]:
    """One description per operator name; of a damaged file only types and shapes are missing."""
    try:
        found = {each.name: each for each in _read_descriptions(path, sink)}
    except FormatError as error:
        sink.warn(message("no_types", error=error), file=path)
        return []
    return list(found.values())


def _read_descriptions(path: Path, sink: Sink) -> Iterator[OperatorDescription]:
    for _, row in csv_lines(path, sink):
        name = _first(row, "full_kernel_name", "full_op_name")
        if not name:
            continue
        try:
            operands = _OPERANDS.decode(row.get("op_info") or "{}")
        except (msgspec.MsgspecError, RecursionError):
            operands = {}
        inputs = [value for key, value in operands.items() if key.startswith("input")]
        outputs = [value for key, value in operands.items() if key.startswith("output")]
        yield OperatorDescription(
            name,
            _first(row, "kernel_type", "op_type") or type_in_name(name),
            ";".join(_shape(each) for each in inputs),
            ";".join(each.data_type.removeprefix("NUMBER_TYPE_") for each in inputs),
            ";".join(_shape(each) for each in outputs),
        )


def _shape(operand: _Operand) -> str:
    return operand.shape if isinstance(operand.shape, str) else ",".join(map(str, operand.shape))


def steps_of_trace(step_trace: Path | None, sink: Sink) -> tuple[TraceStep, ...]:
    try:
        return read_step_trace(step_trace, sink, windows=False).steps if step_trace else ()
    except FormatError:
        return ()  # the section of the steps reports the error
