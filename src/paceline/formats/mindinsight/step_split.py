"""Rows of `steps` in MindInsight trees: the step trace, and how each step was spent.

    *_cluster_analyse_*.csv    in ms (µs on GPU), one row per step without a step number; computation_time is
                               step - communication_alone_time, which includes free time; the last row is an average
    else kernels               computing = |union of kernels on the AI cores|, communication = |union of its operators|,
                               both inside the step:  exposed = |union of both| - computing,
                               overlapped = communication - exposed, free = duration - |union of both|

A timeline may have been cut off at MindSpore's size limit: steps without most of their kernels are not split.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import Sink
from paceline.formats.csv_files import csv_table
from paceline.formats.hccl.operator_names import op_named
from paceline.formats.intervals import Times, merge_intervals
from paceline.formats.mindinsight.kernels import KernelFiles, staged_kernels
from paceline.formats.mindinsight.steps import StepTrace, read_step_trace
from paceline.formats.mindinsight.timeline import TimelineFiles
from paceline.formats.units import scaled

WHOLE = 0.98
"""A step with less than this share of the kernels that a step has was recorded only in part."""


@dataclass(frozen=True)
class StepSplit:
    """How one step was spent (ns)."""

    computing: int | None = None
    exposed: int | None = None
    bubble: int | None = None
    communication: int | None = None
    overlapped: int | None = None
    free: int | None = None


@dataclass(frozen=True)
class StepFiles:
    step_trace: Path | None
    analyse: Path | None
    kernels: KernelFiles | TimelineFiles | None = None
    """Where kernels are, which tell how a step was spent if `analyse` does not."""


def read_steps(files: StepFiles, sink: Sink) -> None:
    trace = read_step_trace(files.step_trace, sink, windows=True) if files.step_trace else StepTrace()
    steps, analyse = trace.steps, files.analyse
    splits = _splits_of_steps(_read_splits(analyse, sink), len(steps), analyse, sink) if analyse else []
    if not steps:
        sink.add("steps", {"step": list(range(1, len(splits) + 1)), **_split_columns(splits)})
        return
    if not splits and files.kernels:
        splits = _splits_by_kernels(trace, files.kernels, sink)
    splits += [StepSplit()] * (len(steps) - len(splits))
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
    return {name: [getattr(split, name) for split in splits] for name in StepSplit.__dataclass_fields__}


# -- from kernels -----------------------------------------------------------------------------------------------------


def _splits_by_kernels(trace: StepTrace, files: KernelFiles | TimelineFiles, sink: Sink) -> list[StepSplit]:
    """One split per step; [] if the kernels cannot be read, which their own section reports."""
    try:
        starts, ends = _kernel_times(files, sink)
    except (FormatError, duckdb.Error):
        return []
    if not len(starts):
        return []
    begin = np.array([step.start for step in trace.steps], dtype=np.int64)
    end = np.array([step.end for step in trace.steps], dtype=np.int64)
    computing = merge_intervals(starts, ends)
    communication = merge_intervals(*_window_times(trace, None))
    receives = merge_intervals(*_window_times(trace, "receive"))
    either = merge_intervals(
        np.concatenate([computing.starts, communication.starts]), np.concatenate([computing.ends, communication.ends])
    )
    busy = merge_intervals(
        np.concatenate([computing.starts, receives.starts]), np.concatenate([computing.ends, receives.ends])
    )
    computed, communicated, both = (each.covered(begin, end) for each in (computing, communication, either))
    bubbles = busy.covered(begin, end) - computed
    order = np.sort(starts)
    counts = np.searchsorted(order, end) - np.searchsorted(order, begin)
    whole = counts >= WHOLE * np.median(counts[counts > 0]) if counts.any() else counts > 0
    return [
        StepSplit(
            computing=int(computed[at]),
            exposed=int(both[at] - computed[at]),
            bubble=int(bubbles[at]),
            communication=int(communicated[at]),
            overlapped=int(communicated[at] - (both[at] - computed[at])),
            free=max(0, int(end[at] - begin[at] - both[at])),
        )
        if whole[at]
        else StepSplit()
        for at in range(len(begin))
    ]


def _window_times(trace: StepTrace, op: str | None) -> tuple[Times, Times]:
    windows = [window for window in trace.windows if op is None or op_named(window.name) == op]
    return (
        np.array([window.start for window in windows], dtype=np.int64),
        np.array([window.end for window in windows], dtype=np.int64),
    )


def _kernel_times(files: KernelFiles | TimelineFiles, sink: Sink) -> tuple[Times, Times]:
    """Starts and ends of the kernels on the AI cores."""
    with staged_kernels(files, sink) as table:
        if table is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        columns = sink.connection.execute(
            f"SELECT start, start + duration AS finish FROM {table} "
            "WHERE start IS NOT NULL AND duration IS NOT NULL AND core = 'AI_CORE'"
        ).fetchnumpy()
    return np.asarray(columns["start"], dtype=np.int64), np.asarray(columns["finish"], dtype=np.int64)


# -- from cluster_analyse ---------------------------------------------------------------------------------------------


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
        sink.warn(message("all_steps", n=steps, steps=steps), file=path)
        return splits
    if len(splits) == 1:
        sink.warn(message("one_average"), file=path)
    else:
        known = message("count_steps", n=steps) if steps else message("unknown_steps")
        sink.warn(message("last_average", n=len(splits), steps=known), file=path)
    return splits[:-1]
