"""Steps in MindInsight trees: step_trace_raw_{id}_detail_time.csv, split further by *_cluster_analyse_*.csv.

step_trace_raw counts in ticks of 10 ns of the device's clock:

    total = end_point - start_point = iteration_interval + fp_and_bp + tail

cluster_analyse is in ms (µs on GPU), one row per step without a step number. Its computation_time is
step - communication_alone_time, which includes free time. Both files end with an average whose definition depends on the
version (steps 2..n, all steps, or a longer run): it is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.core.errors import FormatError
from paceline.formats.base import Sink
from paceline.formats.csv_files import csv_table
from paceline.formats.hccl.operator_names import display_names
from paceline.formats.units import scaled

TICK = 10
"""ns"""

_START, _END = "_start_point", "_end_point"


class OperatorWindow(msgspec.Struct, frozen=True):
    """Start and end of one communication operator in one step of the step trace (ns)."""

    name: str
    step: int
    start: int
    end: int


@dataclass(frozen=True)
class TraceStep:
    """One row of the step trace (ns); None for columns that the version lacks."""

    number: int
    start: int
    end: int
    duration: int
    data_wait: int | None
    forward_backward: int | None
    tail: int | None


@dataclass(frozen=True)
class StepTrace:
    steps: tuple[TraceStep, ...] = ()
    windows: tuple[OperatorWindow, ...] = ()

    def step_at(self, time: int) -> int | None:
        """The step whose [start, end) contains a time; the end of the last step belongs to it."""
        found = next((step.number for step in self.steps if step.start <= time < step.end), None)
        return self.steps[-1].number if found is None and self.steps and self.steps[-1].end == time else found


def read_step_trace(path: Path, sink: Sink, *, windows: bool) -> StepTrace:
    """All steps, without the average; with the communication operators if `windows`."""
    header, lines = csv_table(path, sink)
    if "step_num" not in header or not {"start_point", "end_point"} <= set(header):
        raise FormatError("is not a step trace: step_num, start_point or end_point is missing", file=path, line=1)
    column = {name: index for index, name in enumerate(header)}
    operators = _operators(column) if windows else ()
    steps: list[TraceStep] = []
    found: list[OperatorWindow] = []
    for line, cells in lines:
        if cells[column["step_num"]].strip() == "-":
            continue
        step = _step(column, cells, first=not steps)
        if step is None:
            sink.warn("a row without a step, start or end is left out", file=path, line=line)
        elif step.start or step.end:  # a row of zeros is an average that some versions left empty
            steps.append(step)
            found += _windows(operators, cells, step.number)
    return StepTrace(tuple(steps), tuple(found))


def _step(column: dict[str, int], cells: Sequence[str], *, first: bool) -> TraceStep | None:
    def ticks(*names: str) -> int | None:
        index = next((column[name] for name in names if name in column), None)
        return None if index is None else scaled(cells[index], TICK)

    step, start, end = scaled(cells[column["step_num"]], 1), ticks("start_point"), ticks("end_point")
    if step is None or start is None or end is None:
        return None
    wait, total = ticks("iteration_interval"), ticks("total")
    if first and wait == 0 and start == ticks("fp_point"):
        wait = None  # the start of the first step is not recorded; the writer used its first operator
    return TraceStep(
        number=step,
        start=start,
        end=end,
        duration=end - start if total is None else total,
        data_wait=wait,
        forward_backward=ticks("fp_and_bp", "fp"),
        tail=ticks("tail"),
    )


def _operators(column: dict[str, int]) -> tuple[tuple[str, int, int], ...]:
    """(name, column of its start, column of its end)."""
    names = [name.removesuffix(_START) for name in column if name.endswith(_START)]
    shown = display_names(name for name in names if name + _END in column)
    return tuple((short, column[name + _START], column[name + _END]) for name, short in shown.items())


def _windows(operators: tuple[tuple[str, int, int], ...], cells: Sequence[str], step: int) -> Iterable[OperatorWindow]:
    for name, at_start, at_end in operators:
        start, end = scaled(cells[at_start], TICK), scaled(cells[at_end], TICK)
        if start and end and end >= start:  # 0: the operator did not run in this step
            yield OperatorWindow(name, step, start, end)


# -- the section ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepSplit:
    """One row of cluster_analyse (ns)."""

    computing: int | None
    exposed: int | None
    bubble: int | None


def read_steps(step_trace: Path | None, analyse: Path | None, sink: Sink) -> None:
    steps = read_step_trace(step_trace, sink, windows=False).steps if step_trace else ()
    splits = _splits_of_steps(_read_splits(analyse, sink), len(steps), analyse, sink) if analyse else []
    if not steps:
        sink.add("steps", {"step": list(range(1, len(splits) + 1)), **_split_columns(splits)})
        return
    splits += [StepSplit(None, None, None)] * (len(steps) - len(splits))
    sink.add(
        "steps",
        {
            "step": [step.number for step in steps],
            "start": [step.start for step in steps],
            "end": [step.end for step in steps],
            "duration": [step.duration for step in steps],
            "data_wait": [step.data_wait for step in steps],
            "forward_backward": [step.forward_backward for step in steps],
            "tail": [step.tail for step in steps],
            **_split_columns(splits[: len(steps)]),
        },
    )


def _split_columns(splits: list[StepSplit]) -> dict[str, list[int | None]]:
    return {
        "computing": [split.computing for split in splits],
        "exposed": [split.exposed for split in splits],
        "bubble": [split.bubble for split in splits],
    }


def _read_splits(path: Path, sink: Sink) -> list[StepSplit]:
    header, lines = csv_table(path, sink)
    unit = 1e3 if path.name.startswith("gpu_") else 1e6  # µs on GPU, ms on Ascend
    wanted = [_column(header, start) for start in ("computation", "communication_alone", "receive_alone")]
    if wanted[0] is None:
        return []  # the data-parallel variant only repeats the step trace
    return [
        StepSplit(*(None if index is None else scaled(cells[index], unit) for index in wanted)) for _, cells in lines
    ]


def _column(header: list[str], start: str) -> int | None:
    """The first column whose name begins so: some versions append "_time"."""
    return next((index for index, name in enumerate(header) if name.startswith(start)), None)


def _splits_of_steps(splits: list[StepSplit], steps: int, path: Path, sink: Sink) -> list[StepSplit]:
    """The rows without the average. With one row more than steps the last is the average; otherwise there is a warning."""
    if not splits or len(splits) == steps + 1:
        return splits[:-1]
    if len(splits) == steps:
        sink.warn(f"{steps} rows for {steps} steps: all are used as steps, none as their average", file=path)
        return splits
    if len(splits) == 1:
        sink.warn("one row and no step trace: assumed to be an average and left out", file=path)
    else:
        known = f"{steps} steps" if steps else "an unknown number of steps"
        sink.warn(f"{len(splits)} rows for {known}: the last one is assumed to be an average", file=path)
    return splits[:-1]


def stage_of(rank: int, *, stages: int, ranks: int) -> int | None:
    """rank // (ranks / stages); None if ranks cannot be divided so.

    >>> [stage_of(rank, stages=2, ranks=4) for rank in range(4)]
    [0, 0, 1, 1]
    """
    if stages < 1 or ranks % stages or not 0 <= rank < ranks:
        return None
    return rank // (ranks // stages)
