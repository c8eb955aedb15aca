"""Steps of MindInsight's trees: step_trace_raw_{id}_detail_time.csv, split further by *_cluster_analyse_*.csv.

step_trace_raw counts in ticks of 10 ns of the device's clock:

    total = end_point - start_point = iteration_interval + fp_and_bp + tail

cluster_analyse is in ms (µs on GPU), one row per step without a step number. Its computation_time is
step - communication_alone_time, so free time counts as computing there. Both files end in an average whose
definition changed with the version (steps 2..n, or all steps, or a longer run): it is never used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.errors import FormatError
from paceline.formats.mindinsight_csv import scaled, table
from paceline.formats.reader import Sink

TICK = 10
"""ns"""

_STREAM = re.compile(r"^stream_(?:ops_\d+|\d+_\d+)_(?=.)")
_EXECUTION = re.compile(r"(?<=-op)(\d+)_\d+$")
_START, _END = "_start_point", "_end_point"


class Window(msgspec.Struct, frozen=True):
    """One communication operator in one step, as the step trace saw it (ns)."""

    name: str
    step: int
    start: int
    end: int


@dataclass(frozen=True)
class Step:
    """One row of the step trace (ns); None where the variant has no such column."""

    number: int
    start: int
    end: int
    duration: int
    data_wait: int | None
    forward_backward: int | None
    tail: int | None


@dataclass(frozen=True)
class StepTrace:
    steps: tuple[Step, ...] = ()
    windows: tuple[Window, ...] = ()

    def step_at(self, time: int) -> int | None:
        """The step whose [start, end) holds a time; the end of the last step belongs to it."""
        found = next((step.number for step in self.steps if step.start <= time < step.end), None)
        return self.steps[-1].number if found is None and self.steps and self.steps[-1].end == time else found


def display_names(recorded: Iterable[str]) -> dict[str, str]:
    """Recorded operator name → name without its stream, where that is still unique.

    The stream an operator runs on differs between ranks of one stage (stream_49_0_Send-op610 on rank 0 is
    stream_36_0_Send-op610 on rank 1 of a real job), the rest of the name does not. MindSpore ≥ 2.1 writes no stream
    but the number of the execution inside a step: AllReduce-op534_0.

    >>> display_names(["stream_36_0_AllReduce-op4542", "stream_10_parallel_0"])
    {'stream_36_0_AllReduce-op4542': 'AllReduce-op4542', 'stream_10_parallel_0': 'stream_10_parallel_0'}
    """
    plain = {name: _EXECUTION.sub(r"\1", _STREAM.sub("", name)) for name in recorded}
    seen = Counter(plain.values())
    return {name: short if seen[short] == 1 else name for name, short in plain.items()}


def read_step_trace(path: Path, sink: Sink, *, windows: bool) -> StepTrace:
    """All steps, without the average; with the communication operators when asked for."""
    header, lines = table(path, sink)
    if "step_num" not in header or not {"start_point", "end_point"} <= set(header):
        raise FormatError("is no step trace: step_num, start_point or end_point is missing", file=path, line=1)
    column = {name: index for index, name in enumerate(header)}
    operators = _operators(column) if windows else ()
    steps: list[Step] = []
    found: list[Window] = []
    for line, cells in lines:
        if cells[column["step_num"]].strip() == "-":
            continue
        step = _step(column, cells, first=not steps)
        if step is None:
            sink.warn("row without a step, start or end left out", file=path, line=line)
        elif step.start or step.end:  # a row of zeros is the average that some writers left empty
            steps.append(step)
            found += _windows(operators, cells, step.number)
    return StepTrace(tuple(steps), tuple(found))


def _step(column: dict[str, int], cells: Sequence[str], *, first: bool) -> Step | None:
    def ticks(*names: str) -> int | None:
        index = next((column[name] for name in names if name in column), None)
        return None if index is None else scaled(cells[index], TICK)

    step, start, end = scaled(cells[column["step_num"]], 1), ticks("start_point"), ticks("end_point")
    if step is None or start is None or end is None:
        return None
    wait, total = ticks("iteration_interval"), ticks("total")
    if first and wait == 0 and start == ticks("fp_point"):
        wait = None  # the start of the first step is not recorded; the writer put its first operator there
    return Step(
        number=step, start=start, end=end, duration=end - start if total is None else total,
        data_wait=wait, forward_backward=ticks("fp_and_bp", "fp"), tail=ticks("tail"),
    )  # fmt: skip


def _operators(column: dict[str, int]) -> tuple[tuple[str, int, int], ...]:
    """(name, column of its start, column of its end), whatever the order of the three columns."""
    names = [name.removesuffix(_START) for name in column if name.endswith(_START)]
    shown = display_names(name for name in names if name + _END in column)
    return tuple((short, column[name + _START], column[name + _END]) for name, short in shown.items())


def _windows(operators: tuple[tuple[str, int, int], ...], cells: Sequence[str], step: int) -> Iterable[Window]:
    for name, at_start, at_end in operators:
        start, end = scaled(cells[at_start], TICK), scaled(cells[at_end], TICK)
        if start and end and end >= start:  # 0: the operator did not run in this step
            yield Window(name, step, start, end)


# -- the section ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
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
    splits += [Split(None, None, None)] * (len(steps) - len(splits))
    sink.add("steps", {
        "step": [step.number for step in steps],
        "start": [step.start for step in steps],
        "end": [step.end for step in steps],
        "duration": [step.duration for step in steps],
        "data_wait": [step.data_wait for step in steps],
        "forward_backward": [step.forward_backward for step in steps],
        "tail": [step.tail for step in steps],
        **_split_columns(splits[: len(steps)]),
    })  # fmt: skip


def _split_columns(splits: list[Split]) -> dict[str, list[int | None]]:
    return {
        "computing": [split.computing for split in splits],
        "exposed": [split.exposed for split in splits],
        "bubble": [split.bubble for split in splits],
    }


def _read_splits(path: Path, sink: Sink) -> list[Split]:
    header, lines = table(path, sink)
    unit = 1e3 if path.name.startswith("gpu_") else 1e6  # µs on GPU, ms on Ascend
    wanted = [_column(header, start) for start in ("computation", "communication_alone", "receive_alone")]
    if wanted[0] is None:
        return []  # the data-parallel variant repeats the step trace in ticks
    return [Split(*(None if index is None else scaled(cells[index], unit) for index in wanted)) for _, cells in lines]


def _column(header: list[str], start: str) -> int | None:
    """The names grew and lost "_time" over the versions."""
    return next((index for index, name in enumerate(header) if name.startswith(start)), None)


def _splits_of_steps(splits: list[Split], steps: int, path: Path, sink: Sink) -> list[Split]:
    """The rows without the average. One row more than steps: the last is the average; anything else is odd."""
    if not splits or len(splits) == steps + 1:
        return splits[:-1]
    if len(splits) == steps:
        sink.warn(f"{steps} rows for {steps} steps: all taken as steps, none as their average", file=path)
        return splits
    if len(splits) == 1:
        sink.warn("one row and no step trace to compare with: taken as an average and left out", file=path)
    else:
        known = f"{steps} steps" if steps else "an unknown number of steps"
        sink.warn(f"{len(splits)} rows for {known}: the last one is taken as an average", file=path)
    return splits[:-1]


def stage_of(rank: int, *, stages: int, ranks: int) -> int | None:
    """rank // (ranks / stages), None when that cannot be.

    >>> [stage_of(rank, stages=2, ranks=4) for rank in range(4)]
    [0, 0, 1, 1]
    """
    if stages < 1 or ranks % stages or not 0 <= rank < ranks:
        return None
    return rank // (ranks // stages)
