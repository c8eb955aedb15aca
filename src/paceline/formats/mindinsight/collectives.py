"""Collectives of one rank in trees of MindInsight and msadvisor.

Transit, wait and links of an execution are from HCCL's traces, or from hccl_raw; start and end are from the step trace,
which also has the executions that HCCL's parser left out. `sequence` is the number of the operator's execution in the
recording, from 1 (operators run once per step, so that it is the step number if no trace counts them): the same (name,
sequence) on two ranks of one stage is the same collective.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from paceline.core.errors import FormatError
from paceline.core.message import Message, message
from paceline.formats.base import Sink
from paceline.formats.hccl.execution import (
    PARSER_LIMIT,
    CollectiveExecution,
    RankCommunicators,
    add_executions,
    add_step_links,
)
from paceline.formats.hccl.operator_names import op_named
from paceline.formats.hccl.raw_csv import read_hccl_raw
from paceline.formats.hccl.task_trace import read_trace
from paceline.formats.mindinsight.steps import OperatorWindow, StepTrace, read_step_trace

ROUNDING = 2_000
"""ns between what two files say of one moment: ticks of 10 ns in the step trace, µs with two digits in HCCL's."""


@dataclass(frozen=True)
class CollectiveFiles:
    step_trace: Path | None
    hccl_raw: Path | None
    traces: tuple[Path, ...]

    @property
    def first(self) -> Path | None:
        return self.traces[0] if self.traces else self.hccl_raw


def read_collectives(files: CollectiveFiles, communicators: RankCommunicators, sink: Sink) -> None:
    trace = _step_trace(files, sink)
    if files.traces:
        executions = name_executions(_read_traces(files.traces, sink), trace)
    elif files.hccl_raw:
        raw = read_hccl_raw(files.hccl_raw, sink)
        executions = _with_times(raw.executions, trace)
        for step, links in raw.step_links:
            add_step_links(step, links, sink)
    else:
        executions = []
    _warn_about_limit(executions, trace, files, sink)
    _warn_about_planes(executions, files, sink)
    add_executions([*executions, *_of_step_trace_only(executions, trace)], communicators, sink)


def _step_trace(files: CollectiveFiles, sink: Sink) -> StepTrace:
    """The step trace; if it is damaged and HCCL's files exist, only the times are missing."""
    if files.step_trace is None:
        return StepTrace()
    try:
        return read_step_trace(files.step_trace, sink, windows=True)
    except FormatError as error:
        if files.first is None:
            raise
        sink.warn(message("no_graph_names", error=error), file=files.step_trace)
        return StepTrace()


def _read_traces(paths: Sequence[Path], sink: Sink) -> list[CollectiveExecution]:
    executions, failed = [], []
    for path in paths:
        try:
            executions.append(read_trace(path))
        except (FormatError, OSError) as error:
            failed.append((path, error))
    if failed:
        path, reason = failed[0]
        sink.warn(message("hccl_left", n=len(failed), all=len(paths), reason=reason), file=path)
    return executions


# -- times from the step trace ----------------------------------------------------------------------------------------


def _with_times(executions: Iterable[CollectiveExecution], trace: StepTrace) -> list[CollectiveExecution]:
    windows = {(window.name, window.step): window for window in trace.windows}
    found = ((one, windows.get((one.name, one.step or 0))) for one in executions)
    return [one.at(start=window.start, end=window.end) if window else one for one, window in found]


def _of_step_trace_only(executions: Iterable[CollectiveExecution], trace: StepTrace) -> list[CollectiveExecution]:
    """Executions that only the step trace has."""
    known = {(one.name, one.step) for one in executions}
    return [
        CollectiveExecution(
            window.name, op_named(window.name), window.step, window.step, window.start, window.end - window.start
        )
        for window in trace.windows
        if (window.name, window.step) not in known
    ]


# -- names from the step trace ----------------------------------------------------------------------------------------


def name_executions(executions: Sequence[CollectiveExecution], trace: StepTrace) -> list[CollectiveExecution]:
    """Add the step to executions of traces, and name and times of the operator whose window contains them.

    The order of directories is neither that of the step trace's columns nor equal on all ranks, so they are matched by
    time: every execution in a directory votes for the windows that contain it.
    """
    names = _names_of_directories(executions, trace.windows)
    windows: dict[str, list[OperatorWindow]] = defaultdict(list)
    for window in trace.windows:
        windows[window.name].append(window)
    return [_named(one, names.get(one.name), windows, trace) for one in executions]


def _named(
    one: CollectiveExecution, name: str | None, windows: dict[str, list[OperatorWindow]], trace: StepTrace
) -> CollectiveExecution:
    start = one.start or 0
    mine = windows.get(name or "", ())
    window = next((each for each in mine if each.start <= start + ROUNDING and start <= each.end), None)
    step = window.step if window else trace.step_at(start)
    one = msgspec.structs.replace(one, name=name or one.name, step=step)
    return one.at(start=window.start, end=window.end) if window else one


def _names_of_directories(
    executions: Sequence[CollectiveExecution], windows: Sequence[OperatorWindow]
) -> dict[str, str]:
    """directory → operator, one to one: by most votes, then by the smallest distance between starts and between ends.

    A window may contain those of shorter operators, and both files round: an end outside by less than ROUNDING is inside.
    """
    votes: Counter[tuple[str, str]] = Counter()
    distance: Counter[tuple[str, str]] = Counter()
    starts = np.array([window.start for window in windows], dtype=np.int64)
    ends = np.array([window.end for window in windows], dtype=np.int64)
    ops = np.array([op_named(window.name) for window in windows], dtype=object)
    for one in executions:
        start = one.start or 0
        end = start + (one.duration or 0)
        fits = (starts <= start + ROUNDING) & (start <= ends) & ((ops == one.op) | (ops == "other"))
        for index in np.flatnonzero(fits).tolist():
            pair = (one.name, windows[index].name)
            votes[pair] += 1 + int(end <= windows[index].end + ROUNDING)
            distance[pair] += abs(start - windows[index].start) + abs(windows[index].end - end)
    return _best_pairs(votes, distance)


def _best_pairs(votes: Counter[tuple[str, str]], distance: Counter[tuple[str, str]]) -> dict[str, str]:
    result: dict[str, str] = {}
    taken: set[str] = set()
    for directory, name in sorted(votes, key=lambda pair: (-votes[pair], distance[pair], pair)):
        if directory not in result and name not in taken:
            result[directory] = name
            taken.add(name)
    return result


# -- warnings ---------------------------------------------------------------------------------------------------------


def _warn_about_limit(
    executions: Sequence[CollectiveExecution], trace: StepTrace, files: CollectiveFiles, sink: Sink
) -> None:
    """HCCL's parser stops after 500 executions: one warning, with the incomplete steps."""
    recorded = len(files.traces) or len(executions)
    if not executions:
        return
    have = Counter(one.step for one in executions)
    expected = Counter(window.step for window in trace.windows)
    short = sorted(step for step, count in expected.items() if have[step] < count)
    if recorded != PARSER_LIMIT and not short:
        return
    all_of_them = len(trace.windows)
    count: dict[str, object] = {"n": len(executions)}
    if all_of_them > len(executions):
        said = message("transfers_of", all=all_of_them, **count)
    else:
        said = message("transfers_all", **count)
    if recorded == PARSER_LIMIT:
        said = message("parser_limit", said=said)
    sink.warn(message("incomplete_steps", said=said, steps=_steps(short)) if short else said, file=files.first)


def _steps(short: Sequence[int]) -> Message:
    return message("step_many" if len(short) > 1 else "step_one", list=_ranges(short))


def _ranges(steps: Sequence[int]) -> str:
    """
    >>> _ranges([2, 3, 4, 7])
    '2–4, 7'
    """
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][-1] + 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _warn_about_planes(executions: Iterable[CollectiveExecution], files: CollectiveFiles, sink: Sink) -> None:
    """MindSpore ≥ 2.1 adds waits over HCCL's parallel planes: more than the duration of the collective."""
    over = sum(1 for one in executions if one.duration and (one.wait or 0) + (one.transit or 0) > one.duration * 1.5)
    if over:
        sink.warn(message("over_duration", n=over), file=files.first)
