"""The steps of a torch trace straight from its JSON: for a first look that keeps nothing, in a quarter of the time.

Columns are those of formats/kineto_steps.py, to the nanosecond (tested). Events are decoded a few megabytes at a time, so a
trace of any size is read in the same memory. Only what every trace of a device has is understood here; `Unusual` asks for
the whole reader, which knows all the rest and says what is wrong with a file.
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

from paceline.errors import FormatError
from paceline.formats.collective_names import op_of
from paceline.formats.intervals import Times
from paceline.formats.kineto_steps import Intervals, Steps, split_steps, steps_by_updates
from paceline.formats.trace_events import event_pieces

_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
_KERNEL = frozenset({"kernel", "Kernel"})
_TALKS = re.compile(r"^(void )?(nccl|rccl|msccl|hcom_|hccl)", re.IGNORECASE)
_STEP, _UPDATE, _LOADING = "ProfilerStep#", "Optimizer.step#", "enumerate(DataLoader)#"
_LATEST = 9e15
"""Microseconds whose nanoseconds fit 64 bits."""


class Unusual(Exception):
    """Not a trace this module understands."""


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
    """Of the table `steps`, ns."""
    program: dict[str, int]
    """How many collectives of which kind."""


def quick_steps(path: Path, base: int) -> QuickSteps:
    """How a rank spent its steps; `base` is what the trace's head says its times are relative to."""
    found = _Found()
    try:
        for piece in event_pieces(path):
            found.add(_EVENTS.decode(piece))
    except (msgspec.DecodeError, UnicodeDecodeError, FormatError, OSError) as error:
        raise Unusual(str(error)) from error
    return found.steps(base)


class _Found:
    """What counts of the events seen so far: spans in ns, as the trace counts them."""

    def __init__(self) -> None:
        self._latest = 0.0
        self._spans: dict[str, list[Intervals]] = {"compute": [], "talk": [], "loading": []}
        self._steps: dict[int, tuple[int, int]] = {}
        self._updates: list[tuple[str, int]] = []
        self._recorded: list[tuple[int, int]] = []
        self._program: Counter[str] = Counter()
        self._is_talk: dict[str, bool] = {}

    def add(self, events: list[_Event]) -> None:
        self._latest = max(self._latest, max((event.ts for event in events if event.ts is not None), default=0.0))
        if not self._latest < _LATEST:
            raise Unusual("times beyond the year 2255")
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
        """Places of the spans that count, by what they count as."""
        kinds: dict[str, list[int]] = {"compute": [], "talk": [], "loading": [], "step": [], "update": []}
        for at, event in enumerate(spans):
            name = event.name or ""
            if event.cat in _DEVICE:
                talks = event.cat in _KERNEL and self._talks(event, name)
                kinds["talk" if talks else "compute"].append(at)
            if event.cat != "gpu_user_annotation":
                if name.startswith(_STEP):
                    kinds["step"].append(at)
                elif name.startswith(_UPDATE):
                    kinds["update"].append(at)
                elif name.startswith(_LOADING):
                    kinds["loading"].append(at)
        return kinds

    def _talks(self, event: _Event, name: str) -> bool:
        collective = event.args.collective if event.args else None
        if name not in self._is_talk:
            self._is_talk[name] = bool(_TALKS.match(name))
        talks = collective is not None or self._is_talk[name]
        if talks and event.dur is not None and event.dur >= 0:
            self._program[op_of(str(collective or name))] += 1
        return talks

    def _add_steps(self, spans: list[_Event], start: Times, end: Times, places: list[int]) -> None:
        for at in places:
            number = (spans[at].name or "")[len(_STEP) :]
            if not number.isdecimal() or len(number) > 18:
                raise Unusual(f"{spans[at].name}: not a step's name as torch writes them")
            if end[at] >= start[at]:
                low, high = self._steps.get(int(number), (int(start[at]), int(end[at])))
                self._steps[int(number)] = (min(low, int(start[at])), max(high, int(end[at])))

    def steps(self, base: int) -> QuickSteps:
        compute, talk, loading = (_joined(self._spans[kind]) for kind in ("compute", "talk", "loading"))
        if not len(compute[0]) + len(talk[0]):
            raise Unusual("no work of a device")
        shift = base if _nanoseconds(np.array([self._latest]))[0] < base else 0
        ordered = sorted((low + shift, high + shift, number) for number, low, high in self._bounds())
        start, end, step = np.array(ordered, dtype=np.int64).T
        moved = ((starts + shift, ends + shift) for starts, ends in (compute, talk, loading))
        return QuickSteps(split_steps(Steps(step, start, end), *moved), dict(self._program))

    def _bounds(self) -> list[tuple[int, int, int]]:
        if self._steps:
            return [(number, low, high) for number, (low, high) in self._steps.items()]
        begin, end = min(low for low, _ in self._recorded), max(high for _, high in self._recorded)
        return steps_by_updates(self._updates, begin, end)


def _joined(pieces: list[Intervals]) -> Intervals:
    starts, ends = zip(*pieces, strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def _nanoseconds(microseconds: NDArray[np.float64]) -> Times:
    """As formats/trace_events.py reads them: multiplied as a whole, times since 1970 would lose another 128 ns."""
    whole = np.trunc(microseconds).astype(np.int64) * 1000
    return whole + _rounded(np.fmod(microseconds, 1.0) * 1000)


def _rounded(values: NDArray[np.float64]) -> Times:
    """To the nearest, halves away from zero, as SQL rounds."""
    whole = np.trunc(values)
    up = np.abs(values - whole) >= 0.5
    return (whole + np.where(up, np.sign(values), 0)).astype(np.int64)
