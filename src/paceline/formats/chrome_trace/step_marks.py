"""ProfilerStep#N events of a large trace, found by scanning bytes: a handful among hundreds of MB."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.formats.units import integer, ns_from_us

_MARK = b"ProfilerStep#"
_RARE = b"#"
"""Searching for one rare character is three times as fast as searching for the whole mark."""
_LONGEST_EVENT = 1 << 16
_MOST_BRACES = 32


@dataclass(frozen=True)
class StepSpan:
    start: int
    end: int


def step_spans(trace: Path) -> Iterator[tuple[int, StepSpan]]:
    """(step, span) of every step, the first event of each; ns on the trace's clock."""
    with trace.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        seen = set()
        end = data.find(_RARE) + 1
        while end:
            if data[max(0, end - len(_MARK)) : end] == _MARK:
                event = _enclosing_event(data, end - len(_MARK))
                step = integer(str(event.get("name", "")).rpartition("#")[2])
                start, length = ns_from_us(str(event.get("ts", ""))), ns_from_us(str(event.get("dur", "")))
                if step is not None and start is not None and length is not None and step not in seen:
                    seen.add(step)
                    yield step, StepSpan(start, start + length)
            end = data.find(_RARE, end) + 1


def _enclosing_event(data: mmap.mmap, position: int) -> dict[str, Any]:
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
        if isinstance(event, dict) and str(event.get("name", "")).startswith("ProfilerStep#"):
            return event
        brace = window.rfind("{", 0, brace)
    return {}
