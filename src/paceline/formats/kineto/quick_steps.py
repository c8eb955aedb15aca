"""Steps of a torch trace directly from its JSON, without a store: a quarter of the time of the full reader.

Columns are those of formats/kineto/steps.py, to the nanosecond (tested). Events are decoded a few megabytes at a time,
so that memory does not grow with the trace. Only common traces with device work are supported: for all others
`UnsupportedTrace` is raised, and the full reader reads them or reports what is wrong with the file.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from paceline.core.errors import FormatError
from paceline.formats.chrome_trace.trace_events import event_pieces
from paceline.formats.intervals import Times
from paceline.formats.kineto.calls import COLLECTIVE_CALLS, OWN_KERNELS, PARAMETERS
from paceline.formats.kineto.categories import DAY, DEVICE, LOADING, MINUTE, is_runtime
from paceline.formats.kineto.collectives import first_op
from paceline.formats.kineto.communication_kernels import CommunicationKernels, communication_kernels
from paceline.formats.kineto.device_steps import (
    DEVICE_FACTOR,
    UNKNOWN,
    DeviceWork,
    StepBounds,
    device_steps,
    stream_key,
)
from paceline.formats.kineto.nesting import NOTHING, Spans, innermost
from paceline.formats.kineto.steps import Intervals, split_steps, steps_by_updates

_DEVICE = frozenset(DEVICE)
_KERNEL = frozenset({"kernel", "Kernel"})
_STEP, _UPDATE = "ProfilerStep#", "Optimizer.step#"
_MARKS = (_STEP, _UPDATE, LOADING, *COLLECTIVE_CALLS)
_NO_KERNEL = -1
_LATEST = 9e15
"""Largest timestamp (µs) whose nanoseconds fit 64 bits."""


class UnsupportedTrace(Exception):
    """The full reader is needed."""


class _Args(msgspec.Struct, gc=False):
    collective: Any = msgspec.field(default=None, name="Collective name")
    correlation: int | None = 0
    stream: int | None = -1
    device: int | None = 0


_NO_ARGS = _Args()


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: str | None = None
    cat: str | None = None
    pid: Any = None
    tid: Any = None
    ts: float | None = None
    dur: float | None = None
    args: _Args | None = None


_EVENTS = msgspec.json.Decoder(list[_Event])


@dataclass(frozen=True)
class QuickSteps:
    columns: dict[str, Any]
    """Columns of the table `steps`, ns."""
    program: dict[str, int]
    """Operation → number of collectives."""


def quick_steps(path: Path, base: int, kernels: CommunicationKernels | None = None) -> QuickSteps:
    """How a rank spent its steps; `base` is the time that the trace's timestamps are relative to (TraceHead.base)."""
    found = _TraceSummary(kernels or communication_kernels())
    try:
        for piece in event_pieces(path):
            found.add(_EVENTS.decode(piece))
    except (msgspec.DecodeError, UnicodeDecodeError, FormatError, OSError) as error:
        raise UnsupportedTrace(str(error)) from error
    return found.steps(base)


class _TraceSummary:
    """What is needed of the events so far: spans in ns on the trace's clock."""

    def __init__(self, kernels: CommunicationKernels) -> None:
        self._kernels = kernels
        self._latest = 0.0
        self._work: list[_WorkPiece] = []
        self._loading: list[Intervals] = []
        self._launches: list[_LaunchPiece] = []
        self._calls: list[tuple[str, str | None, int, int, int]] = []
        self._threads: dict[tuple[Any, Any], int] = {}
        self._steps: dict[int, tuple[int, int]] = {}
        self._device_marks = False
        self._updates: list[tuple[str, int]] = []
        self._host: list[tuple[int, int]] = []
        self._all: list[tuple[int, int]] = []
        self._recorded: list[tuple[int, int]] = []
        self._names: dict[str, int] = {}
        self._collectives: dict[int, str] = {}
        self._works = 0

    def add(self, events: list[_Event]) -> None:
        self._latest = max(
            self._latest, max((event.ts for event in events if event.ts is not None and event.ph == "X"), default=0.0)
        )
        if not self._latest < _LATEST:
            raise UnsupportedTrace("times beyond the year 2255")
        if any(event.ph == "B" for event in events):
            raise UnsupportedTrace("spans written as begin and end")
        spans = [event for event in events if event.ph == "X" and event.ts is not None and event.dur is not None]
        start = _nanoseconds(np.array([event.ts for event in spans], dtype=np.float64))
        end = start + _rounded(np.array([event.dur for event in spans], dtype=np.float64) * 1000)
        kinds = self._kinds(spans)
        for kind, rows in kinds.items():
            kinds[kind] = [at for at in rows if end[at] >= start[at]]
        self._add_work(spans, start, end, kinds["work"])
        self._add_launches(spans, start, kinds["runtime"])
        self._add_calls(spans, start, end, kinds["call"])
        loading = np.array(kinds["loading"], dtype=np.int64)
        self._loading.append((start[loading], end[loading]))
        self._add_steps(spans, start, end, kinds["step"])
        self._updates += [(spans[at].name or "", int(end[at])) for at in kinds["update"]]
        self._add_extent(spans, start, end)

    def _kinds(self, spans: list[_Event]) -> dict[str, list[int]]:
        """Indices of the spans that are needed, by kind."""
        kinds: dict[str, list[int]] = {kind: [] for kind in ("work", "runtime", "call", "loading", "step", "update")}
        for at, event in enumerate(spans):
            category = event.cat
            if category in _DEVICE:
                kinds["work"].append(at)
            elif is_runtime(category):
                kinds["runtime"].append(at)
            name = event.name or ""
            if category == "gpu_user_annotation":
                self._device_marks |= name.startswith(_STEP)
            elif name.startswith(_MARKS):
                if name.startswith(COLLECTIVE_CALLS):
                    kinds["call"].append(at)
                elif name.startswith(_STEP):
                    kinds["step"].append(at)
                elif name.startswith(_UPDATE):
                    kinds["update"].append(at)
                else:
                    kinds["loading"].append(at)
        return kinds

    def _add_work(self, spans: list[_Event], start: Times, end: Times, indices: list[int]) -> None:
        rows = np.array(indices, dtype=np.int64)
        work = [spans[at] for at in indices]
        names = self._names
        self._work.append(
            _WorkPiece(
                start[rows],
                end[rows],
                stream=_numbers([_stream(event.args or _NO_ARGS) for event in work]),
                correlation=_numbers([(event.args or _NO_ARGS).correlation or 0 for event in work]),
                kernel=np.array(
                    [
                        names.setdefault(event.name or "", len(names)) if event.cat in _KERNEL else _NO_KERNEL
                        for event in work
                    ],
                    dtype=np.int64,
                ),
            )
        )
        for at, event in enumerate(work, start=self._works):
            if event.args and event.args.collective is not None:
                self._collectives[at] = str(event.args.collective)
        self._works += len(work)

    def _add_launches(self, spans: list[_Event], start: Times, indices: list[int]) -> None:
        correlation = _numbers([(spans[at].args or _NO_ARGS).correlation or 0 for at in indices])
        thread = _numbers([self._thread(spans[at]) for at in indices])
        self._launches.append(_LaunchPiece(correlation, start[np.array(indices, dtype=np.int64)], thread))

    def _add_calls(self, spans: list[_Event], start: Times, end: Times, indices: list[int]) -> None:
        for at in indices:
            event = spans[at]
            collective = event.args.collective if event.args else None
            declared = None if collective is None else str(collective)
            self._calls.append((event.name or "", declared, self._thread(event), int(start[at]), int(end[at])))

    def _thread(self, event: _Event) -> int:
        key = event.pid, event.tid
        try:
            return self._threads.setdefault(key, len(self._threads))
        except TypeError as error:
            raise UnsupportedTrace("a process or thread that is not a number or text") from error

    def _add_extent(self, spans: list[_Event], start: Times, end: Times) -> None:
        """From when to when was recorded: everything, what is not the profiler's own, and what the host did."""
        for extents, left_out in (
            (self._all, set[str]()),
            (self._recorded, {"Trace"}),
            (self._host, {"Trace", *_DEVICE}),
        ):
            kept = np.array([event.cat not in left_out for event in spans], dtype=np.bool_) & (end >= start)
            if kept.any():
                extents.append((int(start[kept].min()), int(end[kept].max())))

    def _add_steps(self, spans: list[_Event], start: Times, end: Times, indices: list[int]) -> None:
        for at in indices:
            number = (spans[at].name or "")[len(_STEP) :]
            if not number.isdecimal() or len(number) > 18:
                raise UnsupportedTrace(f"{spans[at].name}: not a step name as torch writes it")
            low, high = self._steps.get(int(number), (int(start[at]), int(end[at])))
            self._steps[int(number)] = (min(low, int(start[at])), max(high, int(end[at])))

    def steps(self, base: int) -> QuickSteps:
        shift = base if _nanoseconds(np.array([self._latest]))[0] < base else 0
        if not self._works:
            raise UnsupportedTrace("no device work")
        if not self._believable():
            raise UnsupportedTrace("times far away from all others")
        launched, thread = self._launch_times(np.concatenate([piece.correlation for piece in self._work]))
        communicates, program = self._communication(launched, thread)
        work = self._device_work(launched, communicates, shift)
        if len(np.unique((work.stream + 1) // DEVICE_FACTOR)) > 1:
            raise UnsupportedTrace("work of several devices")
        ordered = sorted((low + shift, high + shift, number) for number, low, high in self._bounds(work))
        start, end, step = np.array(ordered, dtype=np.int64).T
        found = device_steps(StepBounds(step, start, end), work)
        starts, ends = _joined(self._loading)
        return QuickSteps(split_steps(found, work, (starts + shift, ends + shift)), dict(program))

    def _believable(self) -> bool:
        """Whether nothing lies so far from the host's work that the full reader looks at it again."""
        whole, host = _extent(self._all), _extent(self._host or self._all)
        return max(host[0] - whole[0], whole[1] - host[1], whole[1] - whole[0] - DAY) <= MINUTE

    def _device_work(self, launched: Times, communicates: NDArray[np.bool_], shift: int) -> DeviceWork:
        start, end = _joined([(piece.start, piece.end) for piece in self._work])
        stream = np.concatenate([piece.stream for piece in self._work])
        launched = np.where(launched == UNKNOWN, UNKNOWN, launched + shift)
        return DeviceWork(start + shift, end + shift, stream, launched, communicates)

    def _communication(self, launched: Times, thread: Times) -> tuple[NDArray[np.bool_], Counter[str]]:
        """Which work communicates, and how often which operation."""
        ops = [self._kernels.op(name) for name in self._names]
        own = [OWN_KERNELS in name for name in self._names]
        names = [*self._names, ""]
        kernel = np.concatenate([piece.kernel for piece in self._work])
        params = self._enclosing(launched, thread, parameters=True)
        annotation = self._enclosing(launched, thread, parameters=False)
        inside = ((params != NOTHING) | (annotation != NOTHING)) & ~np.array([*own, True])[kernel]
        is_declared = np.zeros(len(kernel), dtype=np.bool_)
        is_declared[list(self._collectives)] = True
        communicates = (np.array([*(op is not None for op in ops), False])[kernel] | is_declared | inside) & (
            kernel >= 0
        )
        program: Counter[str] = Counter()
        for at in np.flatnonzero(communicates).tolist():
            recorded = self._calls[params[at]][1] if params[at] != NOTHING else None
            around = self._calls[annotation[at]] if annotation[at] != NOTHING else (None, None)
            number = int(kernel[at])
            program[first_op((self._collectives.get(at), recorded, around[0], ops[number], names[number]))] += 1
        return communicates, program

    def _enclosing(self, launched: Times, thread: Times, *, parameters: bool) -> Times:
        """Which of the calls is around each launch."""
        rows = [at for at, call in enumerate(self._calls) if (call[0] == PARAMETERS) == parameters]
        found = np.full(len(launched), NOTHING)
        known = np.flatnonzero(launched != UNKNOWN)
        if rows and len(known):
            columns = np.array([self._calls[at][2:] for at in rows], dtype=np.int64).T
            inside = innermost(Spans(*columns), thread[known], launched[known])
            found[known] = np.append(np.array(rows, dtype=np.int64), NOTHING)[inside]
        return found

    def _launch_times(self, correlation: Times) -> tuple[Times, Times]:
        """Time and thread of the launch; of several calls with a correlation the first launched the work."""
        numbers, times, threads = (
            np.concatenate([getattr(piece, name) for piece in self._launches])
            for name in ("correlation", "start", "thread")
        )
        order = np.argsort(times, kind="stable")
        known, first = np.unique(numbers[order], return_index=True)
        if not len(known):
            return np.full(len(correlation), UNKNOWN), np.full(len(correlation), NOTHING)
        at = np.minimum(np.searchsorted(known, correlation), len(known) - 1)
        call = order[first[at]]
        found = (known[at] == correlation) & (correlation != 0)
        return np.where(found, times[call], UNKNOWN), np.where(found, threads[call], NOTHING)

    def _bounds(self, work: DeviceWork) -> list[tuple[int, int, int]]:
        if self._steps:
            return [(number, low, high) for number, (low, high) in self._steps.items()]
        if not self._updates:
            raise UnsupportedTrace("steps are inferred from what repeats")
        if self._device_marks:
            raise UnsupportedTrace("steps are marked by the device's tracks only")
        begin, end = _extent(self._host if work.has_launches else self._recorded)
        return steps_by_updates(self._updates, begin, end)


@dataclass(frozen=True)
class _WorkPiece:
    """Device work of some events; correlation 0 = none; kernel: number of its name, or _NO_KERNEL."""

    start: Times
    end: Times
    stream: Times
    correlation: Times
    kernel: Times


@dataclass(frozen=True)
class _LaunchPiece:
    correlation: Times
    start: Times
    thread: Times


def _extent(extents: list[tuple[int, int]]) -> tuple[int, int]:
    return min(low for low, _ in extents), max(high for _, high in extents)


def _stream(args: _Args) -> int:
    return stream_key(args.device or 0, -1 if args.stream is None else args.stream)


def _numbers(values: list[int]) -> Times:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError as error:
        raise UnsupportedTrace("a number beyond 64 bits") from error


def _joined(pieces: list[Intervals]) -> Intervals:
    starts, ends = zip(*pieces, strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def _nanoseconds(microseconds: NDArray[np.float64]) -> Times:
    """As in formats/chrome_trace/trace_events.py: integer and fraction apart, or timestamps since 1970 would lose 128 ns."""
    whole = np.trunc(microseconds).astype(np.int64) * 1000
    return whole + _rounded(np.fmod(microseconds, 1.0) * 1000)


def _rounded(values: NDArray[np.float64]) -> Times:
    """Round half away from zero, as SQL does."""
    whole = np.trunc(values)
    up = np.abs(values - whole) >= 0.5
    return (whole + np.where(up, np.sign(values), 0)).astype(np.int64)
