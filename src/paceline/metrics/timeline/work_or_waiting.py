"""Work told from waiting where an event had to wait for another stream, or was queued behind one.

The recording does not show when such an event was issued: ranks that did not wait at the same place of the program show it,
and where none did, how far the kernels had come, or the even progress of backward.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import numpy as np

from paceline.metrics.communication.comm_events import Bools, Ints
from paceline.metrics.timeline.program_places import least_at
from paceline.metrics.timeline.timeline_state import Floats, TimelineState

INSIDE_NS = 2_000
"""An event that starts less than this before another ends did not overlap it."""


class WorkOrWaiting:
    """Corrects anchors and work of a timeline whose chains are built."""

    def __init__(self, state: TimelineState) -> None:
        self._state = state

    def separate(self) -> None:
        """Tell work from waiting where a second predecessor decided the start.

        Ranks that did not wait show after which event of the critical stream, and how much work later, the program gets there.
        """
        self._state.sum_self_time()
        codes = self._state.place_codes
        issued, reached = self._issued(codes), self._reached(codes)
        rows_of = self._rows_of(codes)
        known = self._issue_by_progress(codes)
        hidden: list[int] = []
        for row in np.flatnonzero((self._state.after >= 0) & ~known & ~self._state.is_join).tolist():
            before = int(self._state.after[row])
            rank, step = int(self._state.events.rank[row]), int(self._state.step[row])
            anchors = issued.get(int(codes[row]), {})
            if not self._state.side_stream[row]:  # the critical stream goes on from where it is
                if np.isnan(self._recorded_self_time(rank, step)):  # else _match_recorded_split knows better
                    self._state.work[row] = min(int(self._state.work[row]), self._least_work(row, anchors, reached))
                continue
            for place, work in anchors.items():
                anchor = self._anchor_at(row, rows_of, place)
                if anchor >= 0:
                    self._state.anchor[row] = anchor
                    expected = int(work * self._speed_ratio[rank, step])
                    self._state.work[row] = max(
                        0, min(expected, int(self._state.events.start[row] - self._state.events.end[anchor]))
                    )
                    break
            else:  # queued on every rank: issued no earlier than the one before it
                self._state.anchor[row], self._state.work[row] = self._state.anchor[before], self._state.work[before]
                hidden.append(row)
        self._state.sum_self_time()
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
            before = int(self._state.after[row])
            first_of[row] = first_of.get(before, before)
            queues.setdefault(first_of[row], []).append(row)
        behind = {
            int(self._state.after[row]): int(row) for row in np.flatnonzero(self._state.after >= 0)
        } | self._next_on_side_streams()
        for first, rows in queues.items():
            follower = behind.get(rows[-1], -1)
            if follower < 0 or self._state.anchor[follower] != self._state.anchor[first]:
                continue
            on_side = bool(self._state.side_stream[follower])
            until = int(self._state.work[follower]) - (0 if on_side else int(self._state.lag[follower]))
            share = np.arange(1, len(rows) + 1) / (len(rows) + on_side)
            issued = int(self._state.work[first]) + max(0, until - int(self._state.work[first])) * share
            waited = self._state.events.start[rows] - self._state.events.start[first]
            self._state.work[rows] = np.minimum(issued, self._state.work[first] + waited).astype(np.int64)

    def _next_on_side_streams(self) -> dict[int, int]:
        """Of events on a side stream, the next one of the same group in the same step."""
        following: dict[int, int] = {}
        last: dict[tuple[int, int, object], int] = {}
        for row in np.flatnonzero(self._state.side_stream).tolist():
            key = int(self._state.events.rank[row]), int(self._state.step[row]), self._state.events.group_key[row]
            if key in last:
                following[last[key]] = row
            last[key] = row
        return following

    def _issue_by_progress(self, codes: Ints) -> Bools:
        """Queued events are issued where ranks that did not queue issued them: after as many kernels of the step.

        Returns which events are settled by this.
        """
        aside = self._state.side_stream & ~self._state.is_end
        settled = np.zeros(len(codes), dtype=np.bool_)
        progress = np.full(len(codes), -1, dtype=np.int64)
        for rank, rows in self._state.by_rank():
            if rank in self._state.tracks:
                track, here = self._state.tracks[rank], rows[aside[rows]]
                begin = np.nan_to_num(self._state.bounds.start[rank], nan=float(self._state.begin[rank])).astype(
                    np.int64
                )
                progress[here] = (
                    track.progress(self._state.events.start[here]) - track.progress(begin)[self._state.step[here]]
                )
        usual = least_at(codes, progress, aside & (self._state.after < 0) & (progress >= 0))
        for rank, rows in self._state.by_rank():
            here = rows[aside[rows] & (self._state.after[rows] >= 0) & (usual[codes[rows]] >= 0)]
            if rank in self._state.tracks and len(here):
                self._issue(rank, rows, here, usual[codes[here]])
                settled[here] = True
        return settled

    def _issue(self, rank: int, rows: Ints, queued: Ints, progress: Ints) -> None:
        """Anchor queued events where the rank's kernels had come so far."""
        track = self._state.tracks[rank]
        begin = np.nan_to_num(self._state.bounds.start[rank], nan=float(self._state.begin[rank])).astype(np.int64)
        at = track.reached(track.progress(begin)[self._state.step[queued]] + progress)
        at = np.clip(at, begin[self._state.step[queued]], self._state.events.start[queued])
        main = rows[~self._state.side_stream[rows]]
        main = main[np.argsort(self._state.events.end[main], kind="stable")]
        ends = self._state.events.end[main]
        place = np.searchsorted(ends, at + INSIDE_NS, side="right") - 1
        anchor = np.where(place >= 0, main[np.maximum(place, 0)], -1)
        free = np.where(place >= 0, ends[np.maximum(place, 0)], self._state.begin[rank])
        self._state.anchor[queued], self._state.work[queued] = anchor, np.maximum(0, at - free)

    def _anchor_at(self, row: int, rows_of: dict[tuple[int, int, int], int], place: int) -> int:
        """The event at this place of the program that had ended when the row began: in its step, or the end of the one before."""
        rank, step = int(self._state.events.rank[row]), int(self._state.step[row])
        for number in (step, step - 1):
            anchor = rows_of.get((rank, number, place), -1)
            if anchor >= 0 and self._state.events.end[anchor] <= self._state.events.start[row] + INSIDE_NS:
                return anchor if number == step or self._state.is_end[anchor] else -1
        return -1

    def _rows_of(self, codes: Ints) -> dict[tuple[int, int, int], int]:
        """Main-line rows by (rank, step, place)."""
        rows = np.flatnonzero(~self._state.side_stream)
        keys = zip(
            self._state.events.rank[rows].tolist(), self._state.step[rows].tolist(), codes[rows].tolist(), strict=True
        )
        return dict(zip(keys, rows.tolist(), strict=True))

    def _issued(self, codes: Ints) -> dict[int, dict[int, int]]:
        """Of each place of the program: the places it follows on ranks that did not wait, most frequent first, with least work.

        -1 stands for the begin of the first step. Only asked for places where some rank may have waited.
        """
        asked = np.isin(codes, codes[self._state.after >= 0])
        rows = np.flatnonzero(asked & ((self._state.after < 0) | ~self._state.side_stream))
        anchor = self._state.anchor[rows]
        before = np.where(anchor >= 0, codes[anchor], -1)
        width = int(codes.max(initial=0)) + 2
        pairs, first, pair, counts = np.unique(
            codes[rows] * width + before + 1, return_index=True, return_inverse=True, return_counts=True
        )
        least = np.full(len(pairs), np.inf)
        np.minimum.at(
            least,
            pair,
            self._state.work[rows] / self._speed_ratio[self._state.events.rank[rows], self._state.step[rows]],
        )
        issued: dict[int, dict[int, int]] = defaultdict(dict)
        for number in np.lexsort((first, -counts)).tolist():
            place, previous = divmod(int(pairs[number]), width)
            issued[place][previous - 1] = int(least[number])
        return issued

    @cached_property
    def _speed_ratio(self) -> Floats:
        """Recorded self time over its median, ranks × steps: who is slower issues as much later; 1 where it is unknown."""
        own = self._state.bounds.duration - self._state.bounds.exposed
        known = own[~np.isnan(own)]
        median = float(np.median(known)) if len(known) else 0.0
        ratio: Floats = np.where(np.isnan(own) | (own <= 0) | (median <= 0), 1.0, own / (median or 1.0))
        return ratio

    def _reached(self, codes: Ints) -> Floats:
        """The least self time, since the first collective of the step, with which any rank reached each place."""
        self._first_self_time = self._self_time_at_first_event()
        rows = np.flatnonzero(~self._state.side_stream)
        least = np.full(int(codes.max(initial=0)) + 1, np.inf)
        np.minimum.at(least, codes[rows], self._state.self_time_until[rows] - self._first_self_time[rows])
        return least

    def _least_work(self, row: int, anchors: dict[int, int], reached: Floats) -> int:
        """Work before an event that may have waited: no more than on ranks that came the same way, or the fastest."""
        anchor = int(self._state.anchor[row])
        came = int(self._state.place_codes[anchor]) if anchor >= 0 else -1
        same_way = anchors.get(came, int(self._state.work[row]))
        before = float(self._state.self_time_until[anchor] + self._state.overlap[anchor]) if anchor >= 0 else 0.0
        fastest = float(reached[self._state.place_codes[row]]) + float(self._first_self_time[row]) - before
        return min(same_way, max(0, int(fastest)))

    def _match_recorded_split(self) -> None:
        """Self time of a step is its duration less exposed communication, where that was recorded.

        What the chain exceeds it by is waiting that every rank had; it is taken from where the critical stream waited.
        """
        joins = np.flatnonzero((self._state.after >= 0) & ~self._state.side_stream & ~self._state.is_join)
        spare: dict[tuple[int, int], int] = {}
        for row in joins.tolist():
            place = (int(self._state.events.rank[row]), int(self._state.step[row]))
            if self._state.work[row] > self._state.work[spare.get(place, row)] or place not in spare:
                spare[place] = row
        begin = self._state.self_time_at_step_begin()
        for end in np.flatnonzero(self._state.is_end).tolist():
            rank, step = int(self._state.events.rank[end]), int(self._state.step[end])
            excess = self._state.self_time_until[end] - begin[end] - self._recorded_self_time(rank, step)
            row = spare.get((rank, step), -1)
            if row >= 0 and excess > 0:
                self._state.work[row] = max(0, int(self._state.work[row] - excess))
        self._state.sum_self_time()

    def _recorded_self_time(self, rank: int, step: int) -> float:
        """ns of a step less the communication that nothing covered; nan where the recording does not tell."""
        exposed = float(self._state.bounds.exposed[rank, step])
        return float(self._state.bounds.duration[rank, step]) - exposed

    def _self_time_at_first_event(self) -> Floats:
        """Self time when the step's first collective began: input that came late does not make the rest of a step late."""
        rows = np.flatnonzero(~self._state.is_end)[::-1]
        at_event = np.full((len(self._state.bounds.ranks), len(self._state.bounds.steps)), np.nan)
        at_event[self._state.events.rank[rows], self._state.step[rows]] = self._state.self_time_until[rows]
        first = at_event[self._state.events.rank, self._state.step]
        return np.where(np.isnan(first), self._state.self_time_at_step_begin(), first)
