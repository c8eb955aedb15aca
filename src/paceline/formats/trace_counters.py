"""The counter samples of a large trace, found by scanning bytes: a few hundred among hundreds of thousands of events."""

from __future__ import annotations

import json
import mmap
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FIRST_PHASE = re.compile(rb'"ph"(\s*:\s*)"')
_LONGEST_SAMPLE = 4096
_MOST_BRACES = 8
_MOST_SAMPLES = 5_000
"""With more of them, parsing everything is cheaper than picking them out one by one."""


@contextmanager
def counters_only(path: Path) -> Iterator[Path]:
    """A small file with a trace's counter samples (ph "C") as a JSON array; the trace itself where that does not pay."""
    samples = _samples(path)
    if samples is None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="paceline-") as scratch:
        small = Path(scratch) / "counters.json"
        small.write_text(json.dumps(samples), encoding="utf-8")
        yield small


def _samples(path: Path) -> list[dict[str, object]] | None:
    """None where the file is not plain JSON, has too many samples, or one that is not understood."""
    if path.stat().st_size == 0:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        spelled = _FIRST_PHASE.search(data[: 1 << 20])
        if data[:1] not in (b"[", b"{") or spelled is None:
            return None
        # One program wrote the file: it puts the same blanks around every colon.
        mark = b'"ph"' + spelled[1] + b'"C"'
        found: list[dict[str, object]] = []
        position = data.find(mark)
        while position >= 0:
            sample = _enclosing(data, position)
            if sample is None or len(found) >= _MOST_SAMPLES:
                return None
            found.append(sample)
            position = data.find(mark, position + len(mark))
    return found


def _enclosing(data: mmap.mmap, position: int) -> dict[str, object] | None:
    """The counter event that holds this position."""
    low = max(0, position - _LONGEST_SAMPLE)
    try:
        window = data[low : position + _LONGEST_SAMPLE].decode("ascii")
    except UnicodeDecodeError:
        return None  # offsets of bytes and characters would differ
    brace = window.rfind("{", 0, position - low)
    for _ in range(_MOST_BRACES):
        if brace < 0:
            return None
        try:
            event, end = json.JSONDecoder().raw_decode(window, brace)
        except (ValueError, RecursionError):
            event, end = None, 0
        if isinstance(event, dict) and event.get("ph") == "C" and end > position - low:
            return event
        brace = window.rfind("{", 0, brace)
    return None
