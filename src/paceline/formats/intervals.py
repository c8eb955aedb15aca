"""Lengths of unions of time intervals: what a step's computing, communication and overlap are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Union:
    """Disjoint intervals in order, and the length covered before each of them."""

    starts: Times
    ends: Times
    before: Times

    def covered(self, begin: Times, end: Times) -> Times:
        """How much of each window [begin, end) lies inside the union."""
        return self._up_to(end) - self._up_to(begin)

    def first_inside(self, begin: Times, end: Times) -> Times:
        """Where the union first touches each window; masked where it does not."""
        if not len(self.starts):
            return np.ma.masked_all(len(begin), dtype=np.int64)  # type: ignore[no-untyped-call,no-any-return]
        at = np.searchsorted(self.ends, begin, side="right")
        first = np.maximum(self.starts[np.minimum(at, len(self.starts) - 1)], begin)
        missing = (at == len(self.starts)) | (first >= end)
        # Mostly none is, and numpy.ma alone takes a hundredth of a second to import.
        return np.ma.masked_array(first, mask=missing) if missing.any() else first

    def _up_to(self, time: Times) -> Times:
        if not len(self.starts):
            return np.zeros(len(time), dtype=np.int64)
        at = np.maximum(np.searchsorted(self.starts, time, side="right") - 1, 0)
        inside: Times = np.clip(time - self.starts[at], 0, self.ends[at] - self.starts[at])
        covered: Times = self.before[at] + inside
        return covered


def union(starts: Times, ends: Times) -> Union:
    """Merge intervals that touch or overlap; empty and backward ones are dropped."""
    kept = ends > starts
    order = np.argsort(starts[kept], kind="stable")
    starts, ends = starts[kept][order], ends[kept][order]
    if not len(starts):
        return Union(starts, ends, starts)
    reach = np.maximum.accumulate(ends)
    opens = np.concatenate(([True], starts[1:] > reach[:-1]))
    merged_starts = starts[opens]
    merged_ends = reach[np.concatenate((opens[1:], [True]))]
    lengths = merged_ends - merged_starts
    return Union(merged_starts, merged_ends, np.cumsum(lengths) - lengths)
