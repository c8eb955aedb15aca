"""Which span of a thread encloses a moment: the operator around a launch, the annotation around it, the Python frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.formats.intervals import Times

NOTHING = -1
LOOKED_BACK = 8


@dataclass(frozen=True)
class Spans:
    """Spans of threads, each inside or beside every other of its thread."""

    thread: Times
    start: Times
    end: Times

    def __len__(self) -> int:
        return len(self.start)


def innermost(spans: Spans, thread: Times, time: Times) -> Times:
    """Index of the innermost span around each moment of a thread, or NOTHING.

    At a moment d spans are open, and the innermost is the last one that began at depth d; depth is the number of spans that
    were open when it began. Spans may overlap without nesting (rounded times), so that depth misleads: if one of the LOOKED_BACK
    spans that began last are open, it is the shortest of them. What depth finds is checked, and left out if it does not hold.
    """
    found = np.full(len(time), NOTHING)
    for number in np.unique(thread):
        rows, asked = np.flatnonzero(spans.thread == number), np.flatnonzero(thread == number)
        if len(rows):
            found[asked] = _of_thread(spans, rows, time[asked])
    return found


def _of_thread(spans: Spans, rows: Times, time: Times) -> Times:
    rows = rows[np.lexsort((-spans.end[rows], spans.start[rows]))]
    start, end = spans.start[rows], spans.end[rows]
    ends = np.sort(end)
    depth = np.arange(len(rows)) - np.searchsorted(ends, start, side="right")
    opened = np.searchsorted(start, time, side="right") - np.searchsorted(ends, time, side="left")
    # By depth, then by start: the last span at a depth that began before a moment is found by one search.
    order = np.lexsort((np.arange(len(rows)), depth))
    key = _key(depth[order], order, len(rows))
    last = np.searchsorted(start, time, side="right") - 1
    at = np.searchsorted(key, _key(opened - 1, last, len(rows)), side="right") - 1
    place = order[np.maximum(at, 0)]
    holds = (at >= 0) & (opened > 0) & (start[place] <= time) & (time <= end[place])
    recent = _shortest_open(start, end, time, last)
    found = np.where(recent != NOTHING, recent, np.where(holds, place, NOTHING))
    return np.where(found >= 0, rows[found], NOTHING)


def _shortest_open(start: Times, end: Times, time: Times, last: Times) -> Times:
    """The place of the shortest of the spans up to `last` that is open at each moment."""
    found, length = np.full(len(time), NOTHING), np.full(len(time), np.iinfo(np.int64).max)
    for back in range(LOOKED_BACK):
        place = np.maximum(last - back, 0)
        better = (start[place] <= time) & (time <= end[place]) & (end[place] - start[place] < length)
        found, length = np.where(better, place, found), np.where(better, end[place] - start[place], length)
    return found


def _key(depth: Times, position: Times, count: int) -> Times:
    key: Times = depth.astype(np.int64) * (count + 1) + position
    return key
