"""What is known of each event while the timeline of a run is built (rank_timeline.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.comm_events import CommEvents, Ints
from paceline.metrics.timeline.compute_track import ComputeTrack
from paceline.metrics.timeline.program_places import place_codes
from paceline.metrics.timeline.step_bounds import StepBounds

JOIN = "join"
"""The `op` of rows that stand for computing that goes on after an event on a side stream."""

Floats = NDArray[np.float64]


class TimelineState:
    """Arrays run over events, as in Timeline; they are filled in piece by piece."""

    def __init__(
        self, events: CommEvents, bounds: StepBounds, tracks: Mapping[int, ComputeTrack] = MappingProxyType({})
    ) -> None:
        self.events, self.bounds, self.tracks = events, bounds, tracks
        count = len(events.rank)
        self.is_end = events.op == "step_end"
        self.is_join = events.op == JOIN
        self.communicates = ~self.is_end & ~self.is_join
        self.ready = events.start.copy()
        self.step = np.searchsorted(bounds.steps, events.step)
        self.side_stream = np.zeros(count, dtype=np.bool_)
        self.overlap = np.zeros(count, dtype=np.int64)
        self.anchor = np.full(count, -1, dtype=np.int64)
        self.work = np.zeros(count, dtype=np.int64)
        self.after = np.full(count, -1, dtype=np.int64)
        self.lag = np.zeros(count, dtype=np.int64)
        self.covered = np.zeros(count, dtype=np.int64)
        self.begin = np.zeros(len(bounds.ranks), dtype=np.int64)
        self.self_time_until = np.zeros(count)
        self.awaited: frozenset[int] = frozenset()

    def by_rank(self) -> Iterator[tuple[int, Ints]]:
        edges = np.searchsorted(self.events.rank, np.arange(len(self.bounds.ranks) + 1))
        for rank in range(len(self.bounds.ranks)):
            if edges[rank + 1] > edges[rank]:
                yield rank, np.arange(edges[rank], edges[rank + 1], dtype=np.int64)

    @cached_property
    def place_codes(self) -> Ints:
        return place_codes(self.events, self.step)

    def sum_self_time(self) -> None:
        """own(i) = own(anchor) + overlap(anchor) + work(i); anchors come before their followers in row order."""
        own, work, anchor = [0.0] * len(self.work), self.work.tolist(), self.anchor.tolist()
        overlap = self.overlap.tolist()
        for row in range(len(own)):
            before = anchor[row]
            own[row] = work[row] + (own[before] + overlap[before] if before >= 0 else 0.0)
        self.self_time_until = np.array(own)

    def self_time_at_step_begin(self) -> Floats:
        at_end = np.zeros((len(self.bounds.ranks), len(self.bounds.steps) + 1))
        ends = np.flatnonzero(self.is_end)
        at_end[self.events.rank[ends], self.step[ends] + 1] = self.self_time_until[ends]
        begin: Floats = at_end[self.events.rank, self.step]
        return begin
