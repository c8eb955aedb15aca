"""The computing that each rank recorded kernel by kernel: how much of it lies in an interval, and where the program stands.

    covered(r, a, b) = time between a and b during which a kernel of rank r computes
    progress(r, t)   = kernels of rank r that had ended at t

Ranks that run the same program have the same progress at the same place of it, whatever their speed, and whatever they
waited for in between. Kernels that communicate are not computing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.table import RunTables

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ROUNDED_NS = 2_000
"""Timestamps of kernels and of collectives may be rounded, to as much as this."""


@dataclass(frozen=True)
class ComputeTrack:
    """The kernels of one rank in the order of time, those that overlap joined for `covered`."""

    ends: Ints
    """Of every kernel, ascending."""
    edges: Ints
    """Begin and end of each busy interval, one after the other."""
    busy: Ints
    """Computing done at each edge."""
    starts: Ints
    """Of every kernel, ascending."""
    reached_by: Ints
    """When each kernel and all that began before it had ended."""

    def covered(self, begin: Ints, end: Ints) -> Ints:
        """Computing time in each interval."""
        done = np.interp(np.concatenate([begin, end]), self.edges, self.busy)
        both = done[len(begin) :] - done[: len(begin)]
        computing: Ints = np.rint(both).astype(np.int64)
        return computing

    def progress(self, times: Ints) -> Ints:
        ended: Ints = np.searchsorted(self.ends, times + ROUNDED_NS, side="right").astype(np.int64)
        return ended

    def reached(self, progress: Ints) -> Ints:
        """When so many kernels (at least one) had ended."""
        at: Ints = self.ends[np.clip(progress, 1, len(self.ends)) - 1]
        return at


def compute_tracks(run: RunTables, ranks: Ints) -> dict[int, ComputeTrack]:
    """By the place of a rank in `ranks`; ranks without kernels are left out."""
    run.load(["kernels"])
    columns = run.sql(
        "SELECT rank, start, duration FROM kernels WHERE start IS NOT NULL AND duration IS NOT NULL "
        "AND core IS DISTINCT FROM 'COMMUNICATION' ORDER BY rank, start"
    ).fetchnumpy()
    owner, start = columns["rank"].astype(np.int64), columns["start"].astype(np.int64)
    end = start + np.maximum(columns["duration"].astype(np.int64), 0)
    tracks = {}
    for place, rank in enumerate(ranks.tolist()):
        low, high = np.searchsorted(owner, [rank, rank + 1])
        if high > low:
            tracks[place] = compute_track(start[low:high], end[low:high])
    return tracks


def compute_track(start: Ints, end: Ints) -> ComputeTrack:
    """From kernels in the order of their begins."""
    reached = np.maximum.accumulate(end)
    opens = np.flatnonzero(np.concatenate([[True], start[1:] > reached[:-1]]))
    begins, finished = start[opens], reached[np.append(opens[1:], len(start)) - 1]
    edges = np.stack([begins, finished], axis=1).ravel()
    done = np.cumsum(finished - begins)
    busy = np.stack([np.concatenate([[0], done[:-1]]), done], axis=1).ravel()
    return ComputeTrack(np.sort(end), edges, busy, start, reached)
