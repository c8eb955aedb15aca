"""Steps of a torch trace directly from its JSON, without a store: a quarter of the time of the full reader.

Columns are those of formats/kineto/steps.py, to the nanosecond (tested). Events are decoded a few megabytes at a time,
so that memory does not grow with the trace. Only common traces with device work are supported: for all others
`UnsupportedTrace` is raised, and the full reader reads them or reports what is wrong with the file.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from paceline.core.collective_names import op_of
from paceline.core.errors import FormatError
from paceline.formats.chrome_trace.trace_events import event_pieces
from paceline.formats.intervals import Times
from paceline.formats.kineto.steps import Intervals, StepBounds, split_steps, steps_by_updates

_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
_KERNEL = frozenset({"kernel", "Kernel"})
_COMMUNICATION = re.compile(r"^(void )?(nccl|rccl|msccl|hcom_|hccl)", re.IGNORECASE)
_STEP, _UPDATE, _LOADING = "ProfilerStep#", "Optimizer.step#", "enumerate(DataLoader)#"
_LATEST = 9e15
"""Largest timestamp (µs) whose nanoseconds fit 64 bits."""


class UnsupportedTrace(Exception):
    """The full reader is needed."""


class _Args(msgspec.Struct, gc=False):
    collective: Any = msgspec.field(default=None, name="Collective name")


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: str | None = None
    cat: str | None = None
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


def quick_steps(path: Path, base: int) -> QuickSteps:
    """How a rank spent its steps; `base` is the time that the trace's timestamps are relative to (TraceHead.base)."""
    found = _TraceSummary()
    try:
        for piece in event_pieces(path):
            found.add(_EVENTS.decode(piece))
    except (msgspec.DecodeError, UnicodeDecodeError, FormatError, OSError) as error:
        raise UnsupportedTrace(str(error)) from error
    return found.steps(base)


class _TraceSummary:
    """What is needed of the events so far: spans in ns on the trace's clock."""

    def __init__(self) -> None:
        self._latest = 0.0
        self._spans: dict[str, list[Intervals]] = {"compute": [], "communication": [], "loading": []}
        self._steps: dict[int, tuple[int, int]] = {}
        self._updates: list[tuple[str, int]] = []
        self._recorded: list[tuple[int, int]] = []
        self._program: Counter[str] = Counter()
        self._is_communication: dict[str, bool] = {}

    def add(self, events: list[_Event]) -> None:
        self._latest = max(self._latest, max((event.ts for event in events if event.ts is not None), default=0.0))
        if not self._latest < _LATEST:
            raise UnsupportedTrace("times beyond the year 2255")
        spans = [event for event in events if event.ph == "X" and event.ts is not None and event.dur is not None]
        start = _nanoseconds(np.array([event.ts for event in spans], dtype=np.float64))
        end = start + _rounded(np.array([event.dur for event in spans], dtype=np.float64) * 1000)
        kinds = self._kinds(spans)
        for kind, kept in self._spans.items():
            rows = np.array([at for at in kinds[kind] if end[at] >= start[at]], dtype=np.int64)
            kept.append((start[rows], end[rows]))
        self._add_steps(spans, start, end, kinds["step"])
        self._updates += [(spans[at].name or "", int(end[at])) for at in kinds["update"] if end[at] >= start[at]]
        whole = np.array([event.cat != "Trace" for event in spans], dtype=np.bool_) & (end >= start)
        if whole.any():
            self._recorded.append((int(start[whole].min()), int(end[whole].max())))

    def _kinds(self, spans: list[_Event]) -> dict[str, list[int]]:
        """Indices of the spans that are needed, by kind."""
        kinds: dict[str, list[int]] = {"compute": [], "communication": [], "loading": [], "step": [], "update": []}
        for at, event in enumerate(spans):
            name = event.name or ""
            if event.cat in _DEVICE:
                communicates = event.cat in _KERNEL and self._communicates(event, name)
                kinds["communication" if communicates else "compute"].append(at)
            if event.cat != "gpu_user_annotation":
                if name.startswith(_STEP):
                    kinds["step"].append(at)
                elif name.startswith(_UPDATE):
                    kinds["update"].append(at)
                elif name.startswith(_LOADING):
                    kinds["loading"].append(at)
        return kinds

    def _communicates(self, event: _Event, name: str) -> bool:
        collective = event.args.collective if event.args else None
        if name not in self._is_communication:
            self._is_communication[name] = bool(_COMMUNICATION.match(name))
        communicates = collective is not None or self._is_communication[name]
        if communicates and event.dur is not None and event.dur >= 0:
            self._program[op_of(str(collective or name))] += 1
        return communicates

    def _add_steps(self, spans: list[_Event], start: Times, end: Times, indices: list[int]) -> None:
        for at in indices:
            number = (spans[at].name or "")[len(_STEP) :]
            if not number.isdecimal() or len(number) > 18:
                raise UnsupportedTrace(f"{spans[at].name}: not a step name as torch writes it")
            if end[at] >= start[at]:
                low, high = self._steps.get(int(number), (int(start[at]), int(end[at])))
                self._steps[int(number)] = (min(low, int(start[at])), max(high, int(end[at])))

    def steps(self, base: int) -> QuickSteps:
        compute, communication, loading = (
            _joined(self._spans[kind]) for kind in ("compute", "communication", "loading")
        )
        if not len(compute[0]) + len(communication[0]):
            raise UnsupportedTrace("no device work")
        shift = base if _nanoseconds(np.array([self._latest]))[0] < base else 0
        ordered = sorted((low + shift, high + shift, number) for number, low, high in self._bounds())
        start, end, step = np.array(ordered, dtype=np.int64).T
        moved = ((starts + shift, ends + shift) for starts, ends in (compute, communication, loading))
        return QuickSteps(split_steps(StepBounds(step, start, end), *moved), dict(self._program))

    def _bounds(self) -> list[tuple[int, int, int]]:
        if self._steps:
            return [(number, low, high) for number, (low, high) in self._steps.items()]
        begin, end = min(low for low, _ in self._recorded), max(high for _, high in self._recorded)
        return steps_by_updates(self._updates, begin, end)


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
