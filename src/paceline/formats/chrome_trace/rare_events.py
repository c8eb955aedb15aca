"""Counter samples and track names of a large trace, found by scanning bytes: a few hundred among a million spans."""

from __future__ import annotations

import json
import mmap
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from paceline.formats.last_result import LastFileResult

_FIRST_PHASE = re.compile(rb'"ph"(\s*:\s*)"')
_JSON = json.JSONDecoder()
_LONGEST = 4096
_MOST_BRACES = 8
_MOST_EVENTS = 5_000
"""If there are more, parsing the whole trace is cheaper."""


class RareEvent(msgspec.Struct, frozen=True):
    """A counter sample (ph "C") or the name of a process or thread (ph "M")."""

    ph: str
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    args: dict[str, Any] = {}


@dataclass(frozen=True)
class RareEvents:
    """None if the whole trace has to be parsed: too many events, or one that cannot be decoded."""

    samples: list[RareEvent] | None
    names: list[RareEvent] | None


def _scan(path: Path) -> RareEvents:
    """Both kinds in one pass over the bytes of a plain JSON trace."""
    if path.stat().st_size == 0:
        return RareEvents(None, None)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        separator = _FIRST_PHASE.search(data[: 1 << 20])
        if data[:1] not in (b"[", b"{") or separator is None:
            return RareEvents(None, None)
        # One program wrote the file, with the same blanks around every colon. Searching for a p is a third faster than
        # searching for one of the many quotes.
        mark = re.compile(b'ph"' + separator[1] + b'"([CM])"')
        found: dict[bytes, list[RareEvent | None]] = {b"C": [], b"M": []}
        match = mark.search(data)
        while match:
            start, same = match.start(), found[match[1]]
            if data[start - 1 : start] == b'"' and len(same) <= _MOST_EVENTS:
                same.append(_enclosing(data, start))
            match = mark.search(data, match.end())
    return RareEvents(_complete(found[b"C"]), _complete(found[b"M"]))


rare_events = LastFileResult(_scan)


def _complete(found: list[RareEvent | None]) -> list[RareEvent] | None:
    events = [event for event in found if event is not None]
    return events if len(events) == len(found) <= _MOST_EVENTS else None


def _enclosing(data: mmap.mmap, position: int) -> RareEvent | None:
    """The event whose phase is at this position."""
    low = max(0, position - _LONGEST)
    window = data[low : position + _LONGEST]
    # latin-1 keeps one character per byte, so that offsets stay right whatever the text is.
    text = window.decode("latin-1")
    brace = text.rfind("{", 0, position - low)
    for _ in range(_MOST_BRACES):
        if brace < 0:
            return None
        try:
            event, end = _JSON.raw_decode(text, brace)
        except (ValueError, RecursionError):
            event, end = None, 0
        if isinstance(event, dict) and "ph" in event and end > position - low:
            return _decoded(window[brace:end])
        brace = text.rfind("{", 0, brace)
    return None


def _decoded(event: bytes) -> RareEvent | None:
    try:
        return msgspec.json.decode(event, type=RareEvent)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
