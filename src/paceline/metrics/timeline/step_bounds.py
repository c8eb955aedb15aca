"""Begin and end of each rank's steps, and what was recorded of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.comm_events import Bools, CommEvents, Ints
from paceline.metrics.table import RunTables
from paceline.metrics.timeline.phase_overlap import overlap_by_phases

Floats = NDArray[np.float64]

BEHIND = 0.05
"""Of the time that may lie before or behind a step's events, the share that lies behind."""


class StepBounds:
    """Begin and end of each rank's steps: recorded, or fitted around its events."""

    def __init__(self, run: RunTables, events: CommEvents, chosen: tuple[int, ...] | None) -> None:
        run.load(["steps"])
        where = "true" if chosen is None else f"step IN ({', '.join(map(str, chosen)) or 'NULL'})"
        rows = run.sql(
            'SELECT rank, step, start, "end", duration, overlapped, exposed, coalesce(data_wait, preparing), tail FROM steps '
            f"WHERE {where} AND step IS NOT NULL ORDER BY rank, step"
        ).fetchall()
        # A rank whose step trace is lost has rows that only name its steps, without a measured time.
        measured = {rank for rank, _, *times in rows if any(time is not None for time in times[:3])}
        rows = [row for row in rows if row[0] in measured]
        self.ranks = np.unique(np.concatenate([events.ranks, np.array([row[0] for row in rows], dtype=np.int64)]))
        numbers = {row[1] for row in rows} or set(np.unique(events.step).tolist())
        self.steps = np.array(sorted(numbers), dtype=np.int64)
        shape = (len(self.ranks), len(self.steps))
        self.start, self.end, self.duration = (np.full(shape, np.nan) for _ in range(3))
        self.overlapped, self.exposed, self.head, self.tail = (np.full(shape, np.nan) for _ in range(4))
        self._fill(rows)
        self.without_clock: set[int] = set()
        """Rows of ranks whose steps were laid from zero: times of other tables do not fit them."""
        self.first, self.last = self._event_limits(events)
        self._fit()
        if np.isnan(self.exposed).all() and np.isnan(self.overlapped).all():
            self._overlap_with_kernels(run, events)
        if np.isnan(self.exposed).all() and np.isnan(self.overlapped).all():
            self._overlap_by_phases(events)
        self.split_known = not (np.isnan(self.exposed).all() and np.isnan(self.overlapped).all())

    def _fill(self, rows: list[tuple[int | None, ...]]) -> None:
        places = {rank: i for i, rank in enumerate(self.ranks.tolist())}
        numbers = {step: i for i, step in enumerate(self.steps.tolist())}
        targets = (self.start, self.end, self.duration, self.overlapped, self.exposed, self.head, self.tail)
        for rank, step, *values in rows:
            for target, value in zip(targets, values, strict=True):
                if value is not None:
                    target[places[rank], numbers[step]] = value

    def _event_limits(self, events: CommEvents) -> tuple[Floats, Floats]:
        shape = (len(self.ranks), len(self.steps))
        first, last = np.full(shape, np.inf), np.full(shape, -np.inf)
        rank, step, inside = self.places(events)
        np.minimum.at(first, (rank[inside], step[inside]), events.start[inside])
        np.maximum.at(last, (rank[inside], step[inside]), events.end[inside])
        return first, last

    def places(self, events: CommEvents) -> tuple[Ints, Ints, Bools]:
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
                # Nothing is known to happen before a step's first device work, so its first event comes after that.
                latest = (self.first[row] - np.nan_to_num(self.head[row]) - before)[usable].min()
                earliest = (self.last[row] - self.duration[row] - before)[usable].max()
                # Forward and backward come before the sum of gradients, only the optimizer comes behind it.
                begin = latest if earliest > latest else earliest + BEHIND * (latest - earliest)
                missing = known & np.isnan(self.start[row])
                self.start[row, missing] = (begin + before)[missing]
                self.end[row, missing] = (begin + before + self.duration[row])[missing]
            self._fit_durations(row)
            bare = np.isnan(self.start[row]) & np.isfinite(self.first[row])
            self.start[row, bare], self.end[row, bare] = self.first[row, bare], self.last[row, bare]

    def _fit_durations(self, row: int) -> None:
        """Profiler level 0: durations and how they divide, without any time of day. One after the other, from zero:
        all differences are taken on the clock of one rank."""
        known = ~np.isnan(self.duration[row]) & ~np.isnan(self.exposed[row])
        if known.any() and np.isnan(self.start[row]).all() and not np.isfinite(self.first[row]).any():
            end = np.cumsum(np.nan_to_num(self.duration[row]))
            self.start[row, known] = (end - self.duration[row])[known]
            self.end[row, known] = end[known]
            self.without_clock.add(row)

    def lay_from_zero(self) -> None:
        """The steps of all ranks one after the other from zero, as where only durations were recorded."""
        self.end = np.cumsum(self.duration, axis=1)
        self.start = self.end - self.duration
        self.without_clock = set(range(len(self.ranks)))

    def _overlap_with_kernels(self, run: RunTables, events: CommEvents) -> None:
        """Where no tool worked it out: how much computing happened during each step's communication."""
        run.load(["kernels"])
        columns = run.sql(
            "SELECT rank, start, duration FROM kernels WHERE start IS NOT NULL AND duration IS NOT NULL "
            "AND core IS DISTINCT FROM 'COMMUNICATION' ORDER BY rank, start"
        ).fetchnumpy()
        rank, step, inside = self.places(events)
        kernel_rank = columns["rank"].astype(np.int64)
        for place, number in enumerate(self.ranks.tolist()):
            low, high = np.searchsorted(kernel_rank, [number, number + 1])
            rows = np.flatnonzero(inside & (rank == place))
            if low == high or not len(rows):
                continue
            start = columns["start"][low:high].astype(np.float64)
            # Time spent computing before each moment; kernels of one rank follow each other.
            times = np.stack([start, start + columns["duration"][low:high]], axis=1).ravel()
            done = np.cumsum(np.concatenate([[0.0], np.where(np.arange(1, len(times)) % 2, np.diff(times), 0.0)]))
            covered = np.interp(events.end[rows], times, done) - np.interp(events.start[rows], times, done)
            self.overlapped[place] = np.bincount(step[rows], covered, minlength=len(self.steps))
            # Events may overlap: what is left of the later one counts once.
            before = np.concatenate([[0], np.maximum.accumulate(events.end[rows])[:-1]])
            begin = np.minimum(np.maximum(events.start[rows], before), events.end[rows])
            alone = (events.end[rows] - begin) - (
                np.interp(events.end[rows], times, done) - np.interp(begin, times, done)
            )
            self.exposed[place] = np.bincount(step[rows], alone, minlength=len(self.steps))

    def _overlap_by_phases(self, events: CommEvents) -> None:
        rank, step, inside = self.places(events)
        backward_end = self.end - self.tail
        if inside.all() and not np.isnan(backward_end).all() and len(events.rank):
            found = overlap_by_phases(events, rank, step, backward_end)
            if found is not None:
                self.overlapped, self.exposed = found

    def with_ends(self, events: CommEvents) -> CommEvents:
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
        return CommEvents(
            ranks=self.ranks,
            rank=order_rank[order],
            step=np.concatenate([events.step[inside], self.steps[columns]])[order],
            group_key=np.concatenate([events.group_key[inside], nothing])[order],
            op=np.concatenate([events.op[inside], np.full(count, "step_end", dtype=object)])[order],
            start=start[order],
            end=np.concatenate([events.end[inside], ends])[order],
            bytes=np.concatenate([events.bytes[inside], np.full(count, -1)])[order],
            instance=np.unique(instance[order], return_inverse=True)[1].astype(np.int64),
            buffered_sends=events.buffered_sends,
        )
