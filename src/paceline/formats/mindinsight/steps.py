"""The step trace of MindInsight trees, step_trace_raw_{id}_detail_time.csv, in ticks of 10 ns of the device's clock:

    total = end_point - start_point = iteration_interval + fp_and_bp + tail

The file ends with an average whose definition depends on the version (steps 2..n, all steps, or a longer run): it is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.core.errors import FormatError
from paceline.core.message import message
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
        raise FormatError(message("not_step_trace"), file=path, line=1)
    column = {name: index for index, name in enumerate(header)}
    operators = _operators(column) if windows else ()
    steps: list[TraceStep] = []
    found: list[OperatorWindow] = []
    for line, cells in lines:
        if cells[column["step_num"]].strip() == "-":
            continue
        step = _step(column, cells, first=not steps)
        if step is None:
            sink.warn(message("no_step_start"), file=path, line=line)
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


def stage_of(rank: int, *, stages: int, ranks: int) -> int | None:
    """rank // (ranks / stages); None if ranks cannot be divided so.

    >>> [stage_of(rank, stages=2, ranks=4) for rank in range(4)]
    [0, 0, 1, 1]
    """
    if stages < 1 or ranks % stages or not 0 <= rank < ranks:
        return None
    return rank // (ranks // stages)
