"""Which traces of a source are ranks of one job.

Traces that record their rank are, and those whose path names it ("rank3"). The others are only if they were recorded at the same
time on the same kind of card: ranks of a job run together, benchmarks one after the other. Where times are not absolute,
nothing contradicts that they belong together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.core.message import message
from paceline.formats.chrome_trace.trace_events import CutOffError, is_gzip, read_head, unpacked
from paceline.formats.kineto.metadata import TraceHead
from paceline.storage.file_tree import File

_END = 1 << 18
_ABSOLUTE = 10**18
"""ns since 1970 in 2001: smaller times count from something else."""
_TIMES = re.compile(rb'"ts"\s*:\s*"?(\d{1,16})(?:\.\d+)?"?(?:\s*,\s*"dur"\s*:\s*"?(\d{1,15}))?')
_MOST_NAMED = 3

Trace = tuple[File, TraceHead]


@dataclass(frozen=True)
class _Extent:
    """From when to when something was recorded, ns since 1970, and on which kinds of cards."""

    start: int
    end: int
    cards: frozenset[str]

    def fits(self, other: _Extent) -> bool:
        same_time = self.start <= other.end and other.start <= self.end
        return same_time and (self.cards == other.cards or not self.cards or not other.cards)


def of_one_job(found: Sequence[Trace]) -> list[Trace]:
    """The traces of the largest job, of several the newest; its first trace gets a note that names the others."""
    unsure = [at for at, (_, head) in enumerate(found) if not head.is_rank_certain]
    if len(found) < 2 or not unsure:
        return list(found)
    jobs = _jobs(found, unsure)
    largest = max(jobs, key=lambda job: (len(job), max(found[at][1].recorded for at in job)))
    others = [found[at][0].relative for at in range(len(found)) if at not in largest]
    kept = [trace for at, trace in enumerate(found) if at in largest]
    if others:
        file, head = kept[0]
        named = ", ".join(others[:_MOST_NAMED]) + (" …" if len(others) > _MOST_NAMED else "")
        note = message("other_traces", n=len(others), names=named)
        kept[0] = file, replace(head, notes=(*head.notes, note))
    return kept


def _jobs(found: Sequence[Trace], unsure: list[int]) -> list[set[int]]:
    """Traces that belong together. What is certain is one job, and what is not known to lie elsewhere belongs to it."""
    certain = set(range(len(found))) - set(unsure)
    extents = {at: extent for at in range(len(found)) if (extent := _extent(*found[at])) is not None}
    jobs: list[set[int]] = [certain | (set(unsure) - extents.keys())]
    for at in sorted(unsure, key=lambda at: extents[at].start if at in extents else 0):
        if at not in extents:
            continue
        near = [job for job in jobs if any(each in extents and extents[each].fits(extents[at]) for each in job)]
        merged = set().union({at}, *near)
        jobs = [job for job in jobs if job not in near] + [merged]
    return [job for job in jobs if job]


def _extent(file: File, head: TraceHead) -> _Extent | None:
    times = [(int(start) * 1000, int(length or 0) * 1000) for start, length in _TIMES.findall(_ends(file.path))]
    starts = [start + head.base if start < head.base else start for start, _ in times if start]
    lengths = [length for start, length in times if start]
    if not starts or min(starts) < _ABSOLUTE:
        return None
    cards = frozenset(each.name for each in head.devices if each.name)
    return _Extent(min(starts), max(start + length for start, length in zip(starts, lengths, strict=True)), cards)


def _ends(path: Path) -> bytes:
    """Beginning and end of a trace."""
    head = read_head(path)
    if not is_gzip(path):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _END))
            return head + b" " + file.read()
    tail = b""
    try:
        for block in unpacked(path):
            tail = (tail + block)[-_END:]
    except CutOffError:
        pass
    return head + b" " + tail
