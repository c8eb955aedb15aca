"""ProfilerStep#N and enumerate(DataLoader)# events of a large trace, found by scanning bytes: a handful among hundreds of MB."""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.formats.units import integer, ns_from_us

LOADING = "enumerate(DataLoader)#"
"""How the names of torch's DataLoader begin."""
_STEP, _LOADING = b"ProfilerStep#", LOADING.encode()
_RARE = b"#"
"""Searching for one rare character is three times as fast as searching for the whole mark."""
_LONGEST_EVENT = 1 << 16
_MOST_BRACES = 32


@dataclass(frozen=True)
class StepSpan:
    start: int
    end: int


@dataclass(frozen=True)
class MarkedSpans:
    """What the framework marks on the host: the first event of each step, and every wait for a batch; ns on the trace's clock."""

    steps: dict[int, StepSpan]
    loading: list[StepSpan]


def marked_spans(trace: Path) -> MarkedSpans:
    found = MarkedSpans({}, [])
    with trace.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = data.find(_RARE) + 1
        while end:
            for mark in (_STEP, _LOADING):
                if data[max(0, end - len(mark)) : end] == mark:
                    _add(_enclosing_event(data, end - len(mark), mark.decode()), found)
            end = data.find(_RARE, end) + 1
    return found


def _add(event: dict[str, Any], found: MarkedSpans) -> None:
    start, length = ns_from_us(str(event.get("ts", ""))), ns_from_us(str(event.get("dur", "")))
    if start is None or length is None:
        return
    name, span = str(event.get("name", "")), StepSpan(start, start + length)
    if name.startswith(LOADING):
        found.loading.append(span)
    elif (step := integer(name.rpartition("#")[2])) is not None:
        found.steps.setdefault(step, span)


def waited_for_input(loading: Sequence[StepSpan], start: int | None, preparing: int | None) -> int | None:
    """Loading before the first device work of a step; None where no loading was recorded, or not when the step began."""
    if not loading or start is None or preparing is None:
        return None
    return sum(max(0, min(span.end, start + preparing) - max(span.start, start)) for span in loading)


def _enclosing_event(data: mmap.mmap, position: int, mark: str) -> dict[str, Any]:
    """The JSON object whose name is at this position; {} if there is none."""
    decoder = json.JSONDecoder()
    low = max(0, position - _LONGEST_EVENT)
    # latin-1 keeps one character per byte, so that offsets stay right whatever the text is.
    window = data[low : position + _LONGEST_EVENT].decode("latin-1")
    brace = window.rfind("{", 0, position - low + 1)
    for _ in range(_MOST_BRACES):
        if brace < 0:
            break
        try:
            event, _ = decoder.raw_decode(window, brace)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict) and str(event.get("name", "")).startswith(mark):
            return event
        brace = window.rfind("{", 0, brace)
    return {}
