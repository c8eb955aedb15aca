"""Which span of a thread encloses a moment: the operator around a launch, the annotation around it, the Python frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.formats.intervals import Times

NOTHING = -1


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
    were open when it began. Spans that overlap without nesting (rounded times) are checked, and left out if they do not hold.
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
    return np.where(holds, rows[place], NOTHING)


def _key(depth: Times, position: Times, count: int) -> Times:
    key: Times = depth.astype(np.int64) * (count + 1) + position
    return key
