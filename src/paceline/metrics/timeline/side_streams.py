"""Which places of the program run on side streams: the same on all ranks and in all steps.

What starts inside a collective on its rank, and computing that goes on beside it, show a side stream. The rank that comes
last shows neither, for it hardly waits; the others wait without hiding anything. So evidence is gathered per place:

    aside(p)  = share of the executions at p during which something else started, or that were queued behind such ones
    beside(p) = median over steps of the largest share, over the ranks, of an execution's time beside which it computes

A place is on a side stream if aside(p) ≥ ASIDE and computing covers at least BARELY, or if beside(p) ≥ HIDDEN. Messages
start inside each other by turns, which shows nothing: only computing beside them counts.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.comm_events import Bools, CommEvents, Ints
from paceline.metrics.peers import nan_median
from paceline.metrics.timeline.program_places import share_at

Floats = NDArray[np.float64]

ASIDE = 0.2
BARELY = 0.02
HIDDEN = 0.3


class SideStreams:
    """The collectives of a run by place; arrays of callers run over all events."""

    def __init__(self, events: CommEvents, is_end: Bools, place: Ints, step: Ints) -> None:
        self.events, self.is_end, self.place, self.step = events, is_end, place, step

    def settle(self, side_stream: Bools, covered: Ints, recorded: Bools) -> None:
        """Mark all executions of a place alike; `covered` is computing beside each event, where it was `recorded`."""
        rows, place = self._rows, self.place[self._rows]
        beside = self._most_beside(covered, rows[recorded[rows]])[place]
        known = np.isin(place, self.place[rows[recorded[rows]]])
        aside = share_at(place, side_stream[rows]) >= ASIDE
        side_stream[rows] = aside & (~known | (beside >= BARELY)) | (beside >= HIDDEN)

    def settle_messages(self, side_stream: Bools, covered: Ints, recorded: Bools) -> None:
        """Messages beside which their ranks compute: a send that nobody waits for, a receive that was posted early."""
        rows = np.flatnonzero(recorded & ~self.is_end & self.events.is_message)
        if len(rows):
            side_stream[rows] = self._most_beside(covered, rows)[self.place[rows]] >= HIDDEN

    def spread(self, side_stream: Bools) -> None:
        """Where some ranks queue behind an event on a side stream, all are on that stream."""
        rows = self._rows
        side_stream[rows] |= share_at(self.place[rows], side_stream[rows]) >= ASIDE

    @cached_property
    def _rows(self) -> Ints:
        """Everything but messages and ends of steps."""
        return np.flatnonzero(~self.is_end & ~self.events.is_message)

    def _most_beside(self, covered: Ints, rows: Ints) -> Floats:
        """Of each place; 0 where nothing was recorded."""
        share = covered[rows] / np.maximum(self.events.duration[rows], 1)
        width = int(self.step.max(initial=0)) + 1
        best = np.full((int(self.place.max(initial=0)) + 1) * width, np.nan)
        np.fmax.at(best, self.place[rows] * width + self.step[rows], share)
        return np.nan_to_num(nan_median(best.reshape(-1, width)))
