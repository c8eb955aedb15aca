"""Every rank's main line: what it did between collectives, and what it waited for.

The *main line* of a rank is the chain of its own work and of the collectives it waits for. For an event b on the main
line and the next event i:

    work(i) = start(i) - free(b)          free(b) = max(end(b), start(b) + overlap(b))

where overlap(b) is the computing hidden behind b. An event during which another one starts on the same rank is *beside*
the main line (gradients summed during backward): it starts from the main line but nobody waits for it before the end
of the step. All differences are taken on one rank's own clock, so clock skew cancels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.analysis.events import Bools, Events, Ints, read_events
from paceline.run.run import Run

INSIDE_NS = 2_000
"""An event that starts less than this before another ends did not run beside it."""


@dataclass(frozen=True)
class Timeline:
    """Events plus the ends of steps, with their place on the main line. Arrays run over events."""

    events: Events
    steps: Ints
    """Step numbers, ascending; `step` holds places in it."""
    step: Ints
    is_end: Bools
    """Rows that stand for the end of a step on a rank (no communication)."""
    beside: Bools
    overlap: Ints
    anchor: Ints
    """The main-line event this one follows; -1 = the rank's first step begins."""
    work: Ints
    queued: Ints
    """The event of the same group whose end let this one start; -1 when it was not queued."""
    begin: Ints
    """When each rank's first step began."""
    known: NDArray[np.bool_]
    """ranks × steps: whether the rank recorded the step."""

    def own_time(self) -> NDArray[np.float64]:
        """ns of own work, ranks × steps (nan = not recorded): work on the main line plus hidden computing."""
        chain = ~self.beside
        rows = np.flatnonzero(chain)
        result = np.zeros(self.known.shape)
        np.add.at(result, (self.events.rank[rows], self.step[rows]), (self.work + self.overlap)[rows])
        result[~self.known] = np.nan
        return result


def read_timeline(run: Run, steps: tuple[int, ...] | None = None) -> Timeline:
    """The timeline of a run, or of some of its steps."""
    events = read_events(run, steps)
    bounds = _Bounds(run, events, steps)
    joined = bounds.with_ends(events)
    return _Lines(joined, bounds).timeline()


class _Bounds:
    """Begin and end of each rank's steps: recorded, or fitted around its events."""

    def __init__(self, run: Run, events: Events, chosen: tuple[int, ...] | None) -> None:
        run.load(["steps"])
        where = "true" if chosen is None else f"step IN ({', '.join(map(str, chosen)) or 'NULL'})"
        rows = run.sql(
            'SELECT rank, step, start, "end", duration, overlapped, exposed FROM steps '
            f"WHERE {where} AND step IS NOT NULL ORDER BY rank, step"
        ).fetchall()
        self.ranks = np.unique(np.concatenate([events.ranks, np.array([row[0] for row in rows], dtype=np.int64)]))
        numbers = {row[1] for row in rows} or set(np.unique(events.step).tolist())
        self.steps = np.array(sorted(numbers), dtype=np.int64)
        shape = (len(self.ranks), len(self.steps))
        self.start, self.end, self.duration = (np.full(shape, np.nan) for _ in range(3))
        self.overlapped, self.exposed = np.full(shape, np.nan), np.full(shape, np.nan)
        self._fill(rows)
        self.first, self.last = self._event_limits(events)
        self._fit()

    def _fill(self, rows: list[tuple[int | None, ...]]) -> None:
        places = {rank: i for i, rank in enumerate(self.ranks.tolist())}
        numbers = {step: i for i, step in enumerate(self.steps.tolist())}
        targets = (self.start, self.end, self.duration, self.overlapped, self.exposed)
        for rank, step, *values in rows:
            for target, value in zip(targets, values, strict=True):
                if value is not None:
                    target[places[rank], numbers[step]] = value

    def _event_limits(self, events: Events) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        shape = (len(self.ranks), len(self.steps))
        first, last = np.full(shape, np.inf), np.full(shape, -np.inf)
        rank, step, inside = self.places(events)
        np.minimum.at(first, (rank[inside], step[inside]), events.start[inside])
        np.maximum.at(last, (rank[inside], step[inside]), events.end[inside])
        return first, last

    def places(self, events: Events) -> tuple[Ints, Ints, Bools]:
        """Row and column of each event, and whether its step is one of ours."""
        rank = np.searchsorted(self.ranks, events.ranks)[events.rank]
        step = np.clip(np.searchsorted(self.steps, events.step), 0, len(self.steps) - 1)
        return rank, step, self.steps[step] == events.step

    def _fit(self) -> None:
        """Where only durations are known, slide the steps so that all events lie inside; else use the events."""
        for row in range(len(self.ranks)):
            known = ~np.isnan(self.duration[row])
            if np.isnan(self.start[row]).any() and known.any() and np.isfinite(self.first[row][known]).any():
                before = np.concatenate([[0.0], np.cumsum(np.nan_to_num(self.duration[row]))[:-1]])
                usable = known & np.isfinite(self.first[row])
                begin = (self.first[row] - before)[usable].min()
                missing = known & np.isnan(self.start[row])
                self.start[row, missing] = (begin + before)[missing]
                self.end[row, missing] = (begin + before + self.duration[row])[missing]
            bare = np.isnan(self.start[row]) & np.isfinite(self.first[row])
            self.start[row, bare], self.end[row, bare] = self.first[row, bare], self.last[row, bare]

    def with_ends(self, events: Events) -> Events:
        """The events with one more row per rank and step: its end."""
        rank, _, inside = self.places(events)
        rows, columns = np.nonzero(~np.isnan(self.end))
        count = len(rows)
        ends = self.end[rows, columns].astype(np.int64)
        order_rank = np.concatenate([rank[inside], rows])
        start = np.concatenate([events.start[inside], ends])
        last = np.concatenate([np.zeros(int(inside.sum()), dtype=np.int64), np.ones(count, dtype=np.int64)])
        order = np.lexsort((last, start, order_rank))
        instance = np.concatenate([events.instance[inside], events.instances + np.arange(count)])
        nothing = np.full(count, None, dtype=object)
        return Events(
            ranks=self.ranks,
            rank=order_rank[order],
            step=np.concatenate([events.step[inside], self.steps[columns]])[order],
            tie=np.concatenate([events.tie[inside], nothing])[order],
            op=np.concatenate([events.op[inside], np.full(count, "step_end", dtype=object)])[order],
            start=start[order],
            end=np.concatenate([events.end[inside], ends])[order],
            bytes=np.concatenate([events.bytes[inside], np.full(count, -1)])[order],
            instance=np.unique(instance[order], return_inverse=True)[1].astype(np.int64),
        )


class _Lines:
    """Works out anchors, work, overlap and queues, rank by rank."""

    def __init__(self, events: Events, bounds: _Bounds) -> None:
        self.events, self.bounds = events, bounds
        count = len(events.rank)
        self.is_end = events.op == "step_end"
        self.step = np.searchsorted(bounds.steps, events.step)
        self.beside = np.zeros(count, dtype=np.bool_)
        self.overlap = np.zeros(count, dtype=np.int64)
        self.anchor = np.full(count, -1, dtype=np.int64)
        self.work = np.zeros(count, dtype=np.int64)
        self.queued = np.full(count, -1, dtype=np.int64)
        self.begin = np.zeros(len(bounds.ranks), dtype=np.int64)

    def timeline(self) -> Timeline:
        for rank, rows in self._by_rank():
            self._mark_beside(rows)
            self._share_overlap(rank, rows)
            starts = self.bounds.start[rank]
            first = np.nanmin(starts) if not np.isnan(starts).all() else self.events.start[rows[0]]
            self.begin[rank] = min(int(first), int(self.events.start[rows[0]]))
            self._chain(rank, rows.tolist())
        return Timeline(
            events=self.events, steps=self.bounds.steps, step=self.step, is_end=self.is_end, beside=self.beside,
            overlap=self.overlap, anchor=self.anchor, work=self.work, queued=self.queued, begin=self.begin,
            known=~np.isnan(self.bounds.end),
        )  # fmt: skip

    def _by_rank(self) -> Iterator[tuple[int, Ints]]:
        edges = np.searchsorted(self.events.rank, np.arange(len(self.bounds.ranks) + 1))
        for rank in range(len(self.bounds.ranks)):
            if edges[rank + 1] > edges[rank]:
                yield rank, np.arange(edges[rank], edges[rank + 1], dtype=np.int64)

    def _mark_beside(self, rows: Ints) -> None:
        """Another event of this rank starts well inside."""
        start, end = self.events.start[rows], self.events.end[rows]
        communicates = ~self.is_end[rows]
        starts = np.sort(start[communicates])
        later = np.searchsorted(starts, start + INSIDE_NS, side="right")
        next_start = np.where(later < len(starts), starts[np.minimum(later, len(starts) - 1)] if len(starts) else 0, 2**62)
        self.beside[rows] = communicates & (next_start < end - INSIDE_NS)

    def _share_overlap(self, rank: int, rows: Ints) -> None:
        """Hidden communication of a step goes to its main-line events, earliest first."""
        for column in np.unique(self.step[rows]):
            inside = rows[(self.step[rows] == column) & ~self.is_end[rows]]
            hidden = self._hidden(rank, int(column), inside)
            for row in inside[~self.beside[inside]]:
                if hidden <= 0:
                    break
                self.overlap[row] = min(hidden, int(self.events.end[row] - self.events.start[row]))
                hidden -= int(self.overlap[row])

    def _hidden(self, rank: int, column: int, rows: Ints) -> int:
        """ns of a step's communication that computing covers and that is not beside the main line already."""
        overlapped = self.bounds.overlapped[rank, column]
        duration = self.events.end[rows] - self.events.start[rows]
        if np.isnan(overlapped):
            overlapped = float(duration.sum()) - self.bounds.exposed[rank, column]
        aside = float(duration[self.beside[rows]].sum())
        left = overlapped - aside
        # Small differences come from rounding and from how tools assign events to steps.
        return int(left) if left > 0.1 * float(duration.sum()) else 0

    def _chain(self, rank: int, rows: list[int]) -> None:
        start, end = self.events.start, self.events.end
        free, anchor = int(self.begin[rank]), -1
        waiting: list[tuple[int, int]] = []  # main-line events that have begun: (free, row)
        last_of_tie: dict[object, int] = {}
        for row in rows:
            for freed, earlier in waiting:
                if freed <= start[row] and freed >= free:
                    free, anchor = freed, earlier
            waiting = [entry for entry in waiting if entry[0] > start[row]]
            self.anchor[row], self.work[row] = anchor, max(0, int(start[row]) - free)
            previous = last_of_tie.get(self.events.tie[row], -1)
            if previous >= 0 and 0 <= start[row] - end[previous] <= INSIDE_NS * 5 and self.beside[previous]:
                self.queued[row] = previous
            if not self.is_end[row]:
                last_of_tie[self.events.tie[row]] = row
            if not self.beside[row]:
                waiting.append((max(int(end[row]), int(start[row] + self.overlap[row])), row))
