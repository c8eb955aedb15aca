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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.assumed_joins import assumed_joins
from paceline.metrics.awaited import SOON_NS, Awaited, awaited_events
from paceline.metrics.comm_events import PEER_TO_PEER, Bools, CommEvents, Ints, read_events
from paceline.metrics.compute_track import ComputeTrack, compute_tracks
from paceline.metrics.program_places import least_at, place_codes
from paceline.metrics.side_streams import SideStreams
from paceline.metrics.step_bounds import StepBounds
from paceline.metrics.table import RunTables

INSIDE_NS = 2_000
"""An event that starts less than this before another ends did not overlap it."""
SUMS = frozenset({"all_reduce", "reduce_scatter"})
ALONE_HIDDEN = 0.3
"""Share of the communication of the only group in a step that computing covers, from which it runs on a side stream."""
JOIN = "join"
"""The `op` of rows that stand for computing that goes on after an event on a side stream."""
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


class _TimelineBuilder:
    """Finds anchors, work, overlap and queues, rank by rank."""

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

    def with_joins(self) -> _TimelineBuilder:
        """Side streams marked, and a row of its own wherever computing waits for one of them (awaited.py)."""
        for rank, rows in self._by_rank():
            self._mark_side_streams(rows)
            if rank in self.tracks:
                self.covered[rows] = self.tracks[rank].covered(self.events.start[rows], self.events.end[rows])
        self._settle_side_streams()
        for _, rows in self._by_rank():
            self._mark_queued(rows)
        self._spread_queues()
        aside = self.side_stream & self.communicates
        found = awaited_events(self.events, aside, self._place_codes, self.step, self.bounds.start, self.tracks)
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
        for rank, rows in self._by_rank():
            self._share_overlap(rank, rows, streams)
            starts = self.bounds.start[rank]
            first = np.nanmin(starts) if not np.isnan(starts).all() else self.events.start[rows[0]]
            self.begin[rank] = min(int(first), int(self.events.start[rows[0]]))
            self._chain(rank, rows)
        self._separate_waiting()
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
            place=self._place_codes,
            self_time_until=self.self_time_until,
            computed=self._computed(),
            beside=np.where(np.isin(self.events.rank, list(self.tracks)), self.covered, -1),
            level="kernels" if len(self.tracks) == len(self.bounds.ranks) else "collectives",
        )

    def _computed(self) -> Ints:
        """Computing in the work before each event."""
        computed = np.full(len(self.work), -1, dtype=np.int64)
        for rank, rows in self._by_rank():
            if rank in self.tracks:
                anchor = self.anchor[rows]
                free = np.where(anchor >= 0, self.events.end[anchor], self.begin[rank])
                computed[rows] = self.tracks[rank].covered(free, free + self.work[rows])
        return computed

    def _by_rank(self) -> Iterator[tuple[int, Ints]]:
        edges = np.searchsorted(self.events.rank, np.arange(len(self.bounds.ranks) + 1))
        for rank in range(len(self.bounds.ranks)):
            if edges[rank + 1] > edges[rank]:
                yield rank, np.arange(edges[rank], edges[rank + 1], dtype=np.int64)

    def _mark_side_streams(self, rows: Ints) -> None:
        """Another event of this rank starts well inside."""
        start, end = self.events.start[rows], self.events.end[rows]
        communicates = self.communicates[rows]
        starts = np.append(np.sort(start[communicates]), np.iinfo(np.int64).max)
        next_start = starts[np.searchsorted(starts, start + INSIDE_NS, side="right")]
        self.side_stream[rows] = communicates & (next_start < end - INSIDE_NS)

    def _settle_side_streams(self) -> None:
        shown = SideStreams(self.events, self.is_end, self._place_codes, self.step)
        recorded = np.isin(self.events.rank, list(self.tracks))
        shown.settle(self.side_stream, self.covered, recorded)
        shown.settle_messages(self.side_stream, self.covered, recorded)

    def _spread_queues(self) -> None:
        """Ranks that came last did not queue: what they started behind an event that others queued at, did queue there."""
        queued = self.side_stream.copy()
        SideStreams(self.events, self.is_end, self._place_codes, self.step).spread(self.side_stream)
        for _, rows in self._by_rank():
            if (self.side_stream[rows] & ~queued[rows]).any():
                self._mark_queued(rows)

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
        for rank, rows in self._by_rank():
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
        sums = np.flatnonzero(
            (self.events.group_key[rows] == group_key) & np.isin(self.events.op[rows].astype(str), list(SUMS))
        )
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

    def _recorded_self_time(self, rank: int, step: int) -> float:
        """ns of a step less the communication that nothing covered; nan where the recording does not tell."""
        exposed = float(self.bounds.exposed[rank, step])
        return float(self.bounds.duration[rank, step]) - exposed

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

    def _mark_queued(self, rows: Ints) -> None:
        """Events that started the moment the one before them in their stream, itself on a side stream, had ended."""
        last_of_stream: dict[object, int] = {}
        for row in rows[self.communicates[rows]].tolist():
            own = self._message_stream[row] if int(self.events.rank[row]) in self.tracks else None
            stream = self.events.group_key[row], own
            previous = last_of_stream.get(stream, -1)
            if previous >= 0 and self.side_stream[previous]:
                gap = int(self.events.start[row] - self.events.end[previous])
                if -INSIDE_NS <= gap <= QUEUED_NS or self._idle_between(previous, row):
                    self.side_stream[row] = True
                    self.after[row], self.lag[row] = previous, max(0, gap)
            last_of_stream[stream] = row

    def _idle_between(self, before: int, row: int) -> bool:
        """The rank launched the next event when it had waited for the one before: soon, and with nothing computed meanwhile."""
        track = self.tracks.get(int(self.events.rank[row]))
        end, start = self.events.end[[before]], self.events.start[[row]]
        soon = track is not None and 0 <= start[0] - end[0] <= SOON_NS
        return track is not None and soon and int(track.covered(end, start)[0]) == 0

    @cached_property
    def _message_stream(self) -> list[tuple[str, int]]:
        """Of messages: the direction and the partner (-1 = unknown), which have a stream of their own; of others nothing."""
        events = self.events
        both = np.bincount(events.instance, events.rank, minlength=events.instances).astype(np.int64)
        partner = np.where(events.members[events.instance] == 2, both[events.instance] - events.rank, -1)
        messages = np.isin(events.op.astype(str), PEER_TO_PEER)
        return [
            (str(op), other) if message else ("", -1)
            for op, other, message in zip(events.op.tolist(), partner.tolist(), messages.tolist(), strict=True)
        ]

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

    def _separate_waiting(self) -> None:
        """Tell work from waiting where a second predecessor decided the start.

        Ranks that did not wait show after which event of the critical stream, and how much work later, the program gets there.
        """
        self._sum_self_time()
        codes = self._place_codes
        issued, reached = self._issued(codes), self._reached(codes)
        rows_of = self._rows_of(codes)
        known = self._issue_by_progress(codes)
        hidden: list[int] = []
        for row in np.flatnonzero((self.after >= 0) & ~known & ~self.is_join).tolist():
            before = int(self.after[row])
            rank, step = int(self.events.rank[row]), int(self.step[row])
            anchors = issued.get(int(codes[row]), {})
            if not self.side_stream[row]:  # the critical stream goes on from where it is
                if np.isnan(self._recorded_self_time(rank, step)):  # else _match_recorded_split knows better
                    self.work[row] = min(int(self.work[row]), self._least_work(row, anchors, reached))
                continue
            for place, work in anchors.items():
                anchor = self._anchor_at(row, rows_of, place)
                if anchor >= 0:
                    self.anchor[row] = anchor
                    expected = int(work * self._speed_ratio[rank, step])
                    self.work[row] = max(0, min(expected, int(self.events.start[row] - self.events.end[anchor])))
                    break
            else:  # queued on every rank: issued no earlier than the one before it
                self.anchor[row], self.work[row] = self.anchor[before], self.work[before]
                hidden.append(row)
        self._sum_self_time()
        self._match_recorded_split()
        self._spread_issues(hidden)

    def _spread_issues(self, hidden: list[int]) -> None:
        """Sums that queue on every rank do not show when they were issued. Gradients come as backward goes on, piece by piece,
        the last ones at its end:

            issue(k + j) = issue(k) + (end of backward - issue(k)) · j / number of the sums after k

        Sum k is the last one before them whose issue is known; backward ends where the critical stream began to wait for
        them, or where the next sum was issued that did not queue.
        """
        queues: dict[int, list[int]] = {}
        first_of: dict[int, int] = {}
        for row in hidden:  # ascending, so that the one before comes first
            before = int(self.after[row])
            first_of[row] = first_of.get(before, before)
            queues.setdefault(first_of[row], []).append(row)
        behind = {
            int(self.after[row]): int(row) for row in np.flatnonzero(self.after >= 0)
        } | self._next_on_side_streams()
        for first, rows in queues.items():
            follower = behind.get(rows[-1], -1)
            if follower < 0 or self.anchor[follower] != self.anchor[first]:
                continue
            on_side = bool(self.side_stream[follower])
            until = int(self.work[follower]) - (0 if on_side else int(self.lag[follower]))
            share = np.arange(1, len(rows) + 1) / (len(rows) + on_side)
            issued = int(self.work[first]) + max(0, until - int(self.work[first])) * share
            waited = self.events.start[rows] - self.events.start[first]
            self.work[rows] = np.minimum(issued, self.work[first] + waited).astype(np.int64)

    def _next_on_side_streams(self) -> dict[int, int]:
        """Of events on a side stream, the next one of the same group in the same step."""
        following: dict[int, int] = {}
        last: dict[tuple[int, int, object], int] = {}
        for row in np.flatnonzero(self.side_stream).tolist():
            key = int(self.events.rank[row]), int(self.step[row]), self.events.group_key[row]
            if key in last:
                following[last[key]] = row
            last[key] = row
        return following

    def _issue_by_progress(self, codes: Ints) -> Bools:
        """Queued events are issued where ranks that did not queue issued them: after as many kernels of the step.

        Returns which events are settled by this.
        """
        aside = self.side_stream & ~self.is_end
        settled = np.zeros(len(codes), dtype=np.bool_)
        progress = np.full(len(codes), -1, dtype=np.int64)
        for rank, rows in self._by_rank():
            if rank in self.tracks:
                track, here = self.tracks[rank], rows[aside[rows]]
                begin = np.nan_to_num(self.bounds.start[rank], nan=float(self.begin[rank])).astype(np.int64)
                progress[here] = track.progress(self.events.start[here]) - track.progress(begin)[self.step[here]]
        usual = least_at(codes, progress, aside & (self.after < 0) & (progress >= 0))
        for rank, rows in self._by_rank():
            here = rows[aside[rows] & (self.after[rows] >= 0) & (usual[codes[rows]] >= 0)]
            if rank in self.tracks and len(here):
                self._issue(rank, rows, here, usual[codes[here]])
                settled[here] = True
        return settled

    def _issue(self, rank: int, rows: Ints, queued: Ints, progress: Ints) -> None:
        """Anchor queued events where the rank's kernels had come so far."""
        track = self.tracks[rank]
        begin = np.nan_to_num(self.bounds.start[rank], nan=float(self.begin[rank])).astype(np.int64)
        at = track.reached(track.progress(begin)[self.step[queued]] + progress)
        at = np.clip(at, begin[self.step[queued]], self.events.start[queued])
        main = rows[~self.side_stream[rows]]
        main = main[np.argsort(self.events.end[main], kind="stable")]
        ends = self.events.end[main]
        place = np.searchsorted(ends, at + INSIDE_NS, side="right") - 1
        anchor = np.where(place >= 0, main[np.maximum(place, 0)], -1)
        free = np.where(place >= 0, ends[np.maximum(place, 0)], self.begin[rank])
        self.anchor[queued], self.work[queued] = anchor, np.maximum(0, at - free)

    def _anchor_at(self, row: int, rows_of: dict[tuple[int, int, int], int], place: int) -> int:
        """The event at this place of the program that had ended when the row began: in its step, or the end of the one before."""
        rank, step = int(self.events.rank[row]), int(self.step[row])
        for number in (step, step - 1):
            anchor = rows_of.get((rank, number, place), -1)
            if anchor >= 0 and self.events.end[anchor] <= self.events.start[row] + INSIDE_NS:
                return anchor if number == step or self.is_end[anchor] else -1
        return -1

    def _rows_of(self, codes: Ints) -> dict[tuple[int, int, int], int]:
        """Main-line rows by (rank, step, place)."""
        rows = np.flatnonzero(~self.side_stream)
        keys = zip(self.events.rank[rows].tolist(), self.step[rows].tolist(), codes[rows].tolist(), strict=True)
        return dict(zip(keys, rows.tolist(), strict=True))

    def _issued(self, codes: Ints) -> dict[int, dict[int, int]]:
        """Of each place of the program: the places it follows on ranks that did not wait, most frequent first, with least work.

        -1 stands for the begin of the first step. Only asked for places where some rank may have waited.
        """
        asked = np.isin(codes, codes[self.after >= 0])
        rows = np.flatnonzero(asked & ((self.after < 0) | ~self.side_stream))
        anchor = self.anchor[rows]
        before = np.where(anchor >= 0, codes[anchor], -1)
        width = int(codes.max(initial=0)) + 2
        pairs, first, pair, counts = np.unique(
            codes[rows] * width + before + 1, return_index=True, return_inverse=True, return_counts=True
        )
        least = np.full(len(pairs), np.inf)
        np.minimum.at(least, pair, self.work[rows] / self._speed_ratio[self.events.rank[rows], self.step[rows]])
        issued: dict[int, dict[int, int]] = defaultdict(dict)
        for number in np.lexsort((first, -counts)).tolist():
            place, previous = divmod(int(pairs[number]), width)
            issued[place][previous - 1] = int(least[number])
        return issued

    @cached_property
    def _speed_ratio(self) -> Floats:
        """Recorded self time over its median, ranks × steps: who is slower issues as much later; 1 where it is unknown."""
        own = self.bounds.duration - self.bounds.exposed
        known = own[~np.isnan(own)]
        median = float(np.median(known)) if len(known) else 0.0
        ratio: Floats = np.where(np.isnan(own) | (own <= 0) | (median <= 0), 1.0, own / (median or 1.0))
        return ratio

    def _reached(self, codes: Ints) -> Floats:
        """The least self time, since the first collective of the step, with which any rank reached each place."""
        self._first_self_time = self._self_time_at_first_event()
        rows = np.flatnonzero(~self.side_stream)
        least = np.full(int(codes.max(initial=0)) + 1, np.inf)
        np.minimum.at(least, codes[rows], self.self_time_until[rows] - self._first_self_time[rows])
        return least

    def _least_work(self, row: int, anchors: dict[int, int], reached: Floats) -> int:
        """Work before an event that may have waited: no more than on ranks that came the same way, or the fastest."""
        anchor = int(self.anchor[row])
        came = int(self._place_codes[anchor]) if anchor >= 0 else -1
        same_way = anchors.get(came, int(self.work[row]))
        before = float(self.self_time_until[anchor] + self.overlap[anchor]) if anchor >= 0 else 0.0
        fastest = float(reached[self._place_codes[row]]) + float(self._first_self_time[row]) - before
        return min(same_way, max(0, int(fastest)))

    def _match_recorded_split(self) -> None:
        """Self time of a step is its duration less exposed communication, where that was recorded.

        What the chain exceeds it by is waiting that every rank had; it is taken from where the critical stream waited.
        """
        joins = np.flatnonzero((self.after >= 0) & ~self.side_stream & ~self.is_join)
        spare: dict[tuple[int, int], int] = {}
        for row in joins.tolist():
            place = (int(self.events.rank[row]), int(self.step[row]))
            if self.work[row] > self.work[spare.get(place, row)] or place not in spare:
                spare[place] = row
        begin = self._self_time_at_step_begin()
        for end in np.flatnonzero(self.is_end).tolist():
            rank, step = int(self.events.rank[end]), int(self.step[end])
            excess = self.self_time_until[end] - begin[end] - self._recorded_self_time(rank, step)
            row = spare.get((rank, step), -1)
            if row >= 0 and excess > 0:
                self.work[row] = max(0, int(self.work[row] - excess))
        self._sum_self_time()

    @cached_property
    def _place_codes(self) -> Ints:
        return place_codes(self.events, self.step)

    def _sum_self_time(self) -> None:
        """own(i) = own(anchor) + overlap(anchor) + work(i); anchors come before their followers in row order."""
        own, work, anchor = [0.0] * len(self.work), self.work.tolist(), self.anchor.tolist()
        overlap = self.overlap.tolist()
        for row in range(len(own)):
            before = anchor[row]
            own[row] = work[row] + (own[before] + overlap[before] if before >= 0 else 0.0)
        self.self_time_until = np.array(own)

    def _self_time_at_first_event(self) -> Floats:
        """Self time when the step's first collective began: input that came late does not make the rest of a step late."""
        rows = np.flatnonzero(~self.is_end)[::-1]
        at_event = np.full((len(self.bounds.ranks), len(self.bounds.steps)), np.nan)
        at_event[self.events.rank[rows], self.step[rows]] = self.self_time_until[rows]
        first = at_event[self.events.rank, self.step]
        return np.where(np.isnan(first), self._self_time_at_step_begin(), first)

    def _self_time_at_step_begin(self) -> Floats:
        at_end = np.zeros((len(self.bounds.ranks), len(self.bounds.steps) + 1))
        ends = np.flatnonzero(self.is_end)
        at_end[self.events.rank[ends], self.step[ends] + 1] = self.self_time_until[ends]
        begin: Floats = at_end[self.events.rank, self.step]
        return begin


def _merged_length(start: Ints, end: Ints) -> float:
    """ns covered by these intervals, which may overlap.

    >>> _merged_length(np.array([0, 5, 20, 22]), np.array([10, 12, 30, 25]))
    22.0
    """
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate(end[order]) if len(end) else end
    begin = np.maximum(start[order], np.append(start[order][:1], reached[:-1]))
    return float(np.maximum(0, reached - begin).sum())
