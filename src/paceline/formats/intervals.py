"""Unions of time intervals: computing, communication and overlap of a step are lengths of such unions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


@dataclass(frozen=True)
class IntervalUnion:
    """Disjoint intervals in order, and the length covered before each of them."""

    starts: Times
    ends: Times
    before: Times

    def covered(self, begin: Times, end: Times) -> Times:
        """Length of the part of each window [begin, end) that the union covers."""
        return self._up_to(end) - self._up_to(begin)

    def _up_to(self, time: Times) -> Times:
        if not len(self.starts):
            return np.zeros(len(time), dtype=np.int64)
        at = np.maximum(np.searchsorted(self.starts, time, side="right") - 1, 0)
        inside: Times = np.clip(time - self.starts[at], 0, self.ends[at] - self.starts[at])
        covered: Times = self.before[at] + inside
        return covered


def merge_intervals(starts: Times, ends: Times) -> IntervalUnion:
    """Merge intervals that touch or overlap; empty and negative ones are dropped."""
    kept = ends > starts
    order = np.argsort(starts[kept], kind="stable")
    starts, ends = starts[kept][order], ends[kept][order]
    if not len(starts):
        return IntervalUnion(starts, ends, starts)
    reach = np.maximum.accumulate(ends)
    opens = np.concatenate(([True], starts[1:] > reach[:-1]))
    merged_starts = starts[opens]
    merged_ends = reach[np.concatenate((opens[1:], [True]))]
    lengths = merged_ends - merged_starts
    return IntervalUnion(merged_starts, merged_ends, np.cumsum(lengths) - lengths)


def without(union: IntervalUnion, removed: IntervalUnion) -> tuple[Times, Times]:
    """Starts and ends of what one union covers and the other does not."""
    edges = np.unique(np.concatenate((union.starts, union.ends, removed.starts, removed.ends)))
    begin, end = edges[:-1], edges[1:]
    kept = (union.covered(begin, end) > 0) & (removed.covered(begin, end) == 0)
    return begin[kept], end[kept]
