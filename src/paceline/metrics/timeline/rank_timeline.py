"""The timeline of each rank: its work between collectives, what it waited for, and what ran on side streams.

The *critical stream* of a rank is the chain of its own work and of the collectives it waits for. For an event b on the
critical stream and the next event i:

    work(i)      = start(i) - end(b)
    self_time(i) = self_time(b) + overlap(b) + work(i)

where overlap(b) is the computing that runs during b: as kernels show (compute_track.py), else the step's, earliest first. An
event during which another one starts on the same rank, or that was
queued behind such an event in its group, runs on a *side stream* (gradients summed during backward): it is issued from the
critical stream, which waits only for the last event of each side stream. So an event can have a second predecessor:

    start(i) = max(end(anchor) + work(i), end(after) + lag(i))

Where the second predecessor decided the start, the recording does not show how much of the gap was work and how much
waiting; ranks that did not wait at the same place of the program show it. All differences are taken on the clock of one rank,
so clock skew cancels.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.comm_events import Bools, CommEvents, Ints, read_events
from paceline.metrics.table import RunTables
from paceline.metrics.timeline.assumed_joins import assumed_joins
from paceline.metrics.timeline.awaited import SOON_NS, Awaited, awaited_events
from paceline.metrics.timeline.compute_track import compute_tracks
from paceline.metrics.timeline.program_places import joint
from paceline.metrics.timeline.side_streams import SideStreams
from paceline.metrics.timeline.step_bounds import StepBounds
from paceline.metrics.timeline.timeline_state import JOIN, TimelineState
from paceline.metrics.timeline.work_or_waiting import WorkOrWaiting

INSIDE_NS = 2_000
"""An event that starts less than this before another ends did not overlap it."""
SUMS = frozenset({"all_reduce", "reduce_scatter"})
ALONE_HIDDEN = 0.3
"""Share of the communication of the only group in a step that computing covers, from which it runs on a side stream."""
QUEUED_NS = 10_000
"""An event that starts within this after the one before it in its group had been waiting for it."""

Floats = NDArray[np.float64]
Level = Literal["operations", "kernels", "collectives"]


@dataclass(frozen=True)
class Timeline:
    """Communication events and the ends of steps, with their place on the critical stream. Arrays run over events."""

    events: CommEvents
    steps: Ints
    """Step numbers, ascending; `step` holds places in it."""
    step: Ints
    is_end: Bools
    """Rows that stand for the end of a step on a rank (no communication)."""
    side_stream: Bools
    """Whether the event ran on a side stream."""
    overlap: Ints
    """ns of computing during the event."""
    anchor: Ints
    """The critical-stream event this one follows; -1 = the rank's first step begins."""
    work: Ints
    """ns between the end of the anchor and the start of the event."""
    after: Ints
    """Second predecessor: the event on a side stream that this one had to wait for; -1 = none."""
    lag: Ints
    begin: Ints
    """When each rank's first step began."""
    known: NDArray[np.bool_]
    """ranks × steps: whether the rank recorded the step."""

    place: Ints
    """Place in the program: equal on ranks and steps that run the same program."""
    self_time_until: Floats
    """Self time of the rank when it reached each event, ns since its first step began: work, never waiting."""
    split_known: bool = True
    """Whether the recording tells how much communication computing covers."""
    unknown: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """ns before each event that neither work nor a dependency explains, and that no replay keeps; empty = not told."""
    computed: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """ns of `work` during which kernels are known to compute; -1 = not recorded; empty = of no event."""
    beside: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """ns during each event in which its rank is known to compute; -1 = not recorded; empty = of no event."""
    level: Level = "collectives"
    """The finest the dependencies were built of."""

    def self_time(self) -> Floats:
        """ns of the rank's own work, ranks × steps (nan = not recorded)."""
        at_end = np.full(self.known.shape, np.nan)
        rows = np.flatnonzero(self.is_end)
        at_end[self.events.rank[rows], self.step[rows]] = self.self_time_until[rows]
        before = np.concatenate([np.zeros((len(at_end), 1)), at_end[:, :-1]], axis=1)
        own: Floats = at_end - before
        return own


def read_timeline(run: RunTables, steps: tuple[int, ...] | None = None) -> Timeline:
    """The timeline of a run, or of some of its steps."""
    events = read_events(run, steps)
    bounds = StepBounds(run, events, steps)
    joins = assumed_joins(bounds, events)
    joined = bounds.with_ends(events if joins is None else joins)
    tracks = compute_tracks(run, bounds.ranks)
    fitting = {row: track for row, track in tracks.items() if row not in bounds.without_clock}
    return _TimelineBuilder(joined, bounds, fitting).with_joins().timeline()


class _TimelineBuilder(TimelineState):
    """Finds anchors, work, overlap and queues, rank by rank."""

    def with_joins(self) -> _TimelineBuilder:
        """Side streams marked, and a row of its own wherever computing waits for one of them (awaited.py)."""
        for rank, rows in self.by_rank():
            self._mark_side_streams(rows)
            if rank in self.tracks:
                self.covered[rows] = self.tracks[rank].covered(self.events.start[rows], self.events.end[rows])
        self._settle_side_streams()
        self._mark_queued()
        self._spread_queues()
        aside = self.side_stream & self.communicates
        found = awaited_events(self.events, aside, self.place_codes, self.step, self.bounds.start, self.tracks)
        return self._joined(found) if len(found.row) else self

    def _joined(self, found: Awaited) -> _TimelineBuilder:
        """The same with one row more for each event that computing waits for."""
        old, count = self.events, len(self.events.rank)
        events, order = old.with_moments(found.row, found.start, JOIN)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        result = _TimelineBuilder(events, self.bounds, self.tracks)
        kept, added = place[:count], place[count:]
        result.side_stream[kept], result.covered[kept] = self.side_stream, self.covered
        result.after[kept] = np.where(self.after >= 0, place[self.after], -1)
        result.lag[kept] = self.lag
        result.after[added], result.lag[added] = place[found.row], found.lag
        result.ready[added] = found.ready
        result.awaited = frozenset(place[found.row].tolist())
        return result

    def timeline(self) -> Timeline:
        streams = self._lone_streams()
        for rank, rows in self.by_rank():
            self._share_overlap(rank, rows, streams)
            starts = self.bounds.start[rank]
            first = np.nanmin(starts) if not np.isnan(starts).all() else self.events.start[rows[0]]
            self.begin[rank] = min(int(first), int(self.events.start[rows[0]]))
            self._chain(rank, rows)
        WorkOrWaiting(self).separate()
        return Timeline(
            events=self.events,
            steps=self.bounds.steps,
            step=self.step,
            is_end=self.is_end,
            side_stream=self.side_stream,
            overlap=self.overlap,
            anchor=self.anchor,
            work=self.work,
            after=self.after,
            lag=self.lag,
            begin=self.begin,
            known=~np.isnan(self.bounds.end),
            split_known=self.bounds.split_known,
            place=self.place_codes,
            self_time_until=self.self_time_until,
            computed=self._computed(),
            beside=np.where(np.isin(self.events.rank, list(self.tracks)), self.covered, -1),
            level="kernels" if len(self.tracks) == len(self.bounds.ranks) else "collectives",
        )

    def _computed(self) -> Ints:
        """Computing in the work before each event."""
        computed = np.full(len(self.work), -1, dtype=np.int64)
        for rank, rows in self.by_rank():
            if rank in self.tracks:
                anchor = self.anchor[rows]
                free = np.where(anchor >= 0, self.events.end[anchor], self.begin[rank])
                computed[rows] = self.tracks[rank].covered(free, free + self.work[rows])
        return computed

    def _mark_side_streams(self, rows: Ints) -> None:
        """Another event of this rank starts well inside."""
        start, end = self.events.start[rows], self.events.end[rows]
        communicates = self.communicates[rows]
        starts = np.append(np.sort(start[communicates]), np.iinfo(np.int64).max)
        next_start = starts[np.searchsorted(starts, start + INSIDE_NS, side="right")]
        self.side_stream[rows] = communicates & (next_start < end - INSIDE_NS)

    def _settle_side_streams(self) -> None:
        shown = SideStreams(self.events, self.is_end, self.place_codes, self.step)
        recorded = np.isin(self.events.rank, list(self.tracks))
        shown.settle(self.side_stream, self.covered, recorded)
        shown.settle_messages(self.side_stream, self.covered, recorded)

    def _spread_queues(self) -> None:
        """Ranks that came last did not queue: what they started behind an event that others queued at, did queue there."""
        queued = self.side_stream.copy()
        SideStreams(self.events, self.is_end, self.place_codes, self.step).spread(self.side_stream)
        if (self.side_stream & ~queued).any():
            self._mark_queued()

    def _share_overlap(self, rank: int, rows: Ints, streams: set[object]) -> None:
        """The computing beside the critical-stream events: as recorded, else the overlap of each step, earliest first."""
        if rank in self.tracks:
            main = rows[~self.side_stream[rows] & ~self.is_end[rows]]
            self.overlap[main] = self.covered[main]
            return
        for column in np.unique(self.step[rows]):
            inside = rows[(self.step[rows] == column) & ~self.is_end[rows]]
            hidden = self._hidden(rank, int(column), inside)
            for row in inside[~self.side_stream[inside]]:
                if hidden <= 0:
                    break
                self.overlap[row] = min(hidden, int(self.events.end[row] - self.events.start[row]))
                hidden -= int(self.overlap[row])
            for stream in (self._run_of_sums(inside, group_key) for group_key in streams):
                if len(stream):
                    self._queue(stream)

    def _lone_streams(self) -> set[object]:
        """Groups that sum gradients during backward with no other event to show it: much of it is hidden.

        The last rank to arrive does not wait, so the rank that hides most tells; the others' waiting is not hidden.
        """
        shares: dict[object, dict[int, float]] = defaultdict(dict)
        for rank, rows in self.by_rank():
            inside = rows[~self.is_end[rows]]
            if rank in self.tracks or self.side_stream[inside].any():
                continue
            for column in np.unique(self.step[inside]).tolist():
                here = inside[self.step[inside] == column]
                for group_key in set(self.events.group_key[here].tolist()):
                    stream = self._run_of_sums(here, group_key)
                    if len(stream):
                        share = self._hidden_share(stream, self._hidden(rank, column, here))
                        shares[group_key][column] = max(shares[group_key].get(column, 0.0), share)
        return {
            group_key for group_key, best in shares.items() if float(np.median(list(best.values()))) >= ALONE_HIDDEN
        }

    def _hidden_share(self, stream: Ints, hidden: int) -> float:
        """Share of a run of sums that computing covers; of the first alone, where the second had queued behind it.

        However long the rest takes then, because a link is slow, it is not waited for in turn.
        """
        start, end = self.events.start[stream], self.events.end[stream]
        queued = len(stream) > 1 and start[1] - end[0] <= QUEUED_NS
        of = int(end[0] - start[0]) if queued else int((end - start).sum())
        return min(1.0, hidden / max(1, of))

    def _run_of_sums(self, rows: Ints, group_key: object) -> Ints:
        """The sums of a group among these rows of a step, if nothing else is communicated from the first to the last.

        Other collectives of the step must not outweigh them: what computing covers may then be theirs.
        """
        sums = np.flatnonzero((self.events.group_key[rows] == group_key) & self.events.is_op(*SUMS)[rows])
        if not len(sums) or sums[-1] - sums[0] + 1 != len(sums):
            return rows[:0]
        if len(sums) < len(rows):
            time = self.events.end[rows] - self.events.start[rows]
            if len(sums) < 2 or 2 * int(time[sums].sum()) < int(time.sum()):
                return rows[:0]
        return rows[sums]

    def _queue(self, rows: Ints) -> None:
        """Put these events on a side stream, one after the other."""
        self.side_stream[rows] = True
        gaps = self.events.start[rows[1:]] - self.events.end[rows[:-1]]
        queued = np.flatnonzero((gaps >= -INSIDE_NS) & (gaps <= QUEUED_NS))
        self.after[rows[queued + 1]], self.lag[rows[queued + 1]] = rows[queued], np.maximum(0, gaps[queued])

    def _hidden(self, rank: int, column: int, rows: Ints) -> int:
        """ns of a step's communication that computing covers and that is not on a side stream already.

        What is exposed is time, however many messages are under way then: a send and a receive that wait side by side
        count once, else half of their waiting would pass for computing.
        """
        overlapped = self.bounds.overlapped[rank, column]
        start, end, side = self.events.start[rows], self.events.end[rows], self.side_stream[rows]
        if np.isnan(overlapped):
            left = _merged_length(start[~side], end[~side]) - float(self.bounds.exposed[rank, column])
        else:
            left = float(overlapped) - float((end - start)[side].sum())
        # Small differences come from rounding and from how tools assign events to steps.
        return int(left) if left > 0.1 * float((end - start).sum()) else 0

    def _mark_queued(self) -> None:
        """Events that started the moment the one before them in their stream, itself on a side stream, had ended."""
        stream = self._stream
        rows = np.flatnonzero(self.communicates)
        rows = rows[np.argsort(stream[rows], kind="stable")]
        before, row = rows[:-1], rows[1:]
        gap = self.events.start[row] - self.events.end[before]
        near = (stream[before] == stream[row]) & (gap >= -INSIDE_NS) & (gap <= max(QUEUED_NS, SOON_NS))
        for previous, later, idle in zip(before[near].tolist(), row[near].tolist(), gap[near].tolist(), strict=True):
            if self.side_stream[previous] and (idle <= QUEUED_NS or self._idle_between(previous, later)):
                self.side_stream[later] = True
                self.after[later], self.lag[later] = previous, max(0, idle)

    def _idle_between(self, before: int, row: int) -> bool:
        """The rank launched the next event when it had waited for the one before: soon, and with nothing computed meanwhile."""
        track = self.tracks.get(int(self.events.rank[row]))
        end, start = self.events.end[[before]], self.events.start[[row]]
        soon = track is not None and 0 <= start[0] - end[0] <= SOON_NS
        return track is not None and soon and int(track.covered(end, start)[0]) == 0

    @property
    def _stream(self) -> Ints:
        """Number of the rank and group of each event; messages of recorded kernels have a stream per direction and partner."""
        events = self.events
        both = np.bincount(events.instance, events.rank, minlength=events.instances).astype(np.int64)
        partner = np.where(events.members[events.instance] == 2, both[events.instance] - events.rank, -1)
        apart = events.is_message & np.isin(events.rank, list(self.tracks))
        direction = np.where(apart, events.numbered_ops[0] + 1, 0)
        return joint(events.rank, events.numbered_groups[0], direction, np.where(apart, partner + 1, 0))

    def _chain(self, rank: int, rows: Ints) -> None:
        first = int(rows[0])  # lists, because reading single numbers out of arrays is slow
        start, end = self.events.start[rows].tolist(), self.events.end[rows].tolist()
        side_stream, ready = self.side_stream[rows].tolist(), self.ready[rows].tolist()
        is_join = self.is_join[rows].tolist()
        anchors, works = [-1] * len(rows), [0] * len(rows)
        free, anchor = int(self.begin[rank]), -1
        waiting: list[tuple[int, int]] = []  # critical-stream events that have begun: (end, row)
        joins = self._last_on_side_streams(rows[self.side_stream[rows]].tolist())
        pending: list[int] = []
        for place in range(len(rows)):
            begun = start[place] + INSIDE_NS  # timestamps are rounded, to as much as a microsecond
            if waiting and (done := [entry for entry in waiting if entry[0] <= begun]):
                for freed, earlier in done:
                    if free <= freed:
                        free, anchor = freed, earlier
                waiting = [entry for entry in waiting if entry[0] > begun]
            anchors[place], works[place] = anchor, max(0, min(start[place], ready[place]) - free)
            if side_stream[place]:
                if first + place in joins and first + place not in self.awaited:
                    pending.append(place)
                continue
            if not is_join[place] and pending and (ended := [other for other in pending if end[other] <= begun]):
                last = max(ended, key=lambda other: end[other])
                behind = 0 if rank in self.tracks and free > end[last] + INSIDE_NS else max(0, start[place] - end[last])
                self.after[first + place], self.lag[first + place] = first + last, behind
                pending = [other for other in pending if end[other] > begun]
            waiting.append((end[place], first + place))
        self.anchor[rows], self.work[rows] = anchors, works

    def _last_on_side_streams(self, rows: list[int]) -> set[int]:
        """Of events on a side stream, the last of each group in each step: the one the critical stream waits for."""
        last: dict[tuple[int, object], int] = {}
        for row in rows:
            last[int(self.step[row]), self.events.group_key[row]] = row
        return set(last.values())


def _merged_length(start: Ints, end: Ints) -> float:
    """ns covered by these intervals, which may overlap.

    >>> _merged_length(np.array([0, 5, 20, 22]), np.array([10, 12, 30, 25]))
    22.0
    """
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate(end[order]) if len(end) else end
    begin = np.maximum(start[order], np.append(start[order][:1], reached[:-1]))
    return float(np.maximum(0, reached - begin).sum())
