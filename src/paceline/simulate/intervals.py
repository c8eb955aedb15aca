"""Set operations on time intervals: union, length, intersection, difference.

formats/intervals.py also merges intervals, to measure how much of a window they cover. It is not shared on purpose: the
round-trip tests compare what the readers compute with what the simulator wrote, and an error in shared code would be on
both sides and stay unseen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.simulate.cluster import Ints


@dataclass(frozen=True)
class Intervals:
    """Disjoint and sorted."""

    starts: Ints
    ends: Ints

    @property
    def length(self) -> int:
        return int((self.ends - self.starts).sum())

    def __and__(self, other: Intervals) -> Intervals:
        return _keep(self, other, common=True)

    def __sub__(self, other: Intervals) -> Intervals:
        return _keep(self, other, common=False)


def union(starts: Ints, durations: Ints) -> Intervals:
    """The union of overlapping intervals; adjacent ones are joined."""
    if not len(starts):
        return Intervals(starts, starts)
    order = np.argsort(starts, kind="stable")
    begins, ends = starts[order], (starts + durations)[order]
    reach = np.maximum.accumulate(ends)
    opens = np.concatenate(([True], begins[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(opens)[1:] - 1, [len(begins) - 1]))
    return Intervals(begins[opens], reach[last])


def _inside(points: Ints, intervals: Intervals) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if not len(intervals.starts):
        return np.zeros(len(points), dtype=np.bool_)
    before = np.searchsorted(intervals.starts, points, side="right") - 1
    return (before >= 0) & (points < intervals.ends[np.maximum(before, 0)])


def _keep(one: Intervals, two: Intervals, *, common: bool) -> Intervals:
    """Split at every boundary, and keep the pieces of `one` that are inside (common) or outside `two`."""
    cuts = np.unique(np.concatenate((one.starts, one.ends, two.starts, two.ends)))
    if len(cuts) < 2:
        return Intervals(cuts[:0], cuts[:0])
    starts = cuts[:-1]
    kept = _inside(starts, one) & (_inside(starts, two) == common)
    return union(starts[kept], np.diff(cuts)[kept])
