"""The critical path of a run: the chain of work and transfers, across ranks, that decided when the last step ended.

The walk goes backwards over the replayed graph (replay/replay.py), from the last step end along whatever decided each
start, until a rank's first step begins:

    start(i) = max(free(anchor) + work(i), end(after) + lag(i))     the larger term decided: its source comes before i
    free(a)  = max(end(a), start(a) + overlap(a))                   computing that outlasted a collective is work
    end(c)   = start(last arriver of c) + transfer(c)               so the walk goes on at the rank that came last

Waiting for others is therefore never on the path: their work is. The durations of all segments add up to the time from
that first begin to the last end. For each transfer on the path, on the rank that waited for it:

    overlapped = part of the transfer during which that rank was still computing
    serial     = transfer - overlapped
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from paceline.metrics.communication.comm_events import Ints
from paceline.metrics.timeline.rank_timeline import Timeline
from paceline.replay.replay import Costs, Floats, Replay, ReplayResult
from paceline.run.run import Run

WORK, TRANSFER, WAIT = "work", "transfer", "wait"


@dataclass(frozen=True)
class Segment:
    """A piece of the path. `op` is the collective that moved data, or the one (or step end) the work led to."""

    rank: int
    kind: str
    """work, transfer, or wait: the gap between a collective on a side stream and what waited for it."""
    op: str
    duration: float
    overlapped: float = 0.0
    row: int = -1
    """Event of the timeline, for transfers."""
    last: int = -1
    """For transfers: the rank that arrived last."""


@dataclass(frozen=True)
class OperatorTime:
    """A communication operator's share of the path, ns over all its executions there."""

    name: str
    op: str
    serial: float
    overlapped: float
    count: int
    last: int
    """The rank that most often arrived last."""
    last_count: int


@dataclass(frozen=True)
class CriticalPath:
    """Segments in the order of time."""

    segments: tuple[Segment, ...]

    @property
    def total(self) -> float:
        return sum(segment.duration for segment in self.segments)

    def time_of(self, kind: str) -> float:
        return sum(segment.duration for segment in self.segments if segment.kind == kind)


def critical_path(replay: Replay, costs: Costs | None = None) -> CriticalPath:
    """The path of the run as it was, or with other costs (a fix)."""
    outcome = replay.base if costs is None else replay.run(costs)
    ends = np.flatnonzero(replay.timeline.is_end)
    if not len(ends):
        return CriticalPath(())
    last_end = int(ends[np.argmax(outcome.start[ends])])
    walk = _Walk(replay, outcome, costs or replay.costs)
    return CriticalPath(tuple(reversed(walk.back_from(last_end))))


def communication_operators(run: Run, replay: Replay, path: CriticalPath) -> tuple[OperatorTime, ...]:
    """Communication operators on the path by name as recorded, most serial time first."""
    transfers = [segment for segment in path.segments if segment.kind == TRANSFER]
    names = _names(run, replay.timeline, np.array([segment.row for segment in transfers], dtype=np.int64))
    found: dict[str, list[Segment]] = defaultdict(list)
    for segment in transfers:
        found[names.get(segment.row, segment.op)].append(segment)
    times = [_operator_time(name, segments) for name, segments in found.items()]
    return tuple(sorted(times, key=lambda time: (-time.serial, time.name)))


def _operator_time(name: str, segments: list[Segment]) -> OperatorTime:
    hidden = sum(segment.overlapped for segment in segments)
    (last, last_count), *_ = Counter(segment.last for segment in segments).most_common(1)
    whole = sum(segment.duration for segment in segments)
    return OperatorTime(name, segments[0].op, whole - hidden, hidden, len(segments), last, last_count)


def _names(run: Run, line: Timeline, rows: Ints) -> dict[int, str]:
    """Recorded names of events; they are found by rank, start and kind, because the timeline keeps no names."""
    events = line.events
    if not len(rows):
        return {}
    run.load(["collectives"])
    wanted = {
        "row": rows,
        "rank": events.ranks[events.rank[rows]],
        "start": events.start[rows],
        "op": events.op[rows].astype(str),
    }
    run.connection.register("path_rows", wanted)
    try:
        found = run.connection.execute(
            "SELECT row, any_value(name) FROM path_rows JOIN collectives USING (rank, start, op) GROUP BY row"
        ).fetchall()
    finally:
        run.connection.unregister("path_rows")
    return {row: name for row, name in found if name}


class _Walk:
    """One walk back over the graph."""

    def __init__(self, replay: Replay, outcome: ReplayResult, costs: Costs) -> None:
        line = replay.timeline
        self.line, self.costs, self.nodes = line, costs, replay.nodes
        self.start, self.end = outcome.start, outcome.end
        self.computed: Floats = outcome.start + costs.overlap
        """When the computing behind each event was done."""
        self.last_row = _last_rows(replay.nodes.node, outcome.start)

    def back_from(self, row: int) -> list[Segment]:
        """Segments from a row back to a begin, latest first."""
        segments: list[Segment] = []
        # Clocks that are far off can make a cycle in the graph: nothing is visited more often than there are rows.
        for _ in range(2 * len(self.start)):
            cause, busy, segment = self._decided(row)
            segments.append(segment)
            if cause < 0:
                break
            if cause != row and self._outlasted(cause, segment):
                segments.append(self._segment(cause, WORK, float(self.costs.overlap[cause])))
                row = cause
                continue
            row = self._waited_for(cause)
            segments.append(self._transfer(cause, row, busy))
        return [segment for segment in segments if segment.duration > 0]

    def _decided(self, row: int) -> tuple[int, float, Segment]:
        """What decided a start: the event before (-1 = the first step began), until when the rank was busy, the gap."""
        line, anchor, after = self.line, int(self.line.anchor[row]), int(self.line.after[row])
        rank = int(line.events.rank[row])
        free = max(self.end[anchor], self.computed[anchor]) if anchor >= 0 else float(line.begin[rank])
        arrival = float(free + self.costs.work[row])
        if after >= 0 and self.end[after] + line.lag[row] > arrival:
            return after, arrival, self._segment(row, WAIT, float(line.lag[row]))
        busy = float(self.computed[anchor]) if anchor >= 0 else arrival
        return anchor, busy, self._segment(row, WORK, float(self.costs.work[row]))

    def _outlasted(self, cause: int, segment: Segment) -> bool:
        return segment.kind == WORK and bool(self.computed[cause] > self.end[cause])

    def _waited_for(self, cause: int) -> int:
        """The event whose begin decided when this one ended: the last to arrive, or the send of a message that came late."""
        sender = int(self.nodes.sender[cause])
        if sender >= 0:
            arrived = float(self.start[sender] + self.costs.transfer[self.line.events.instance[cause]])
            if arrived >= self.end[cause]:
                return sender
        return int(self.last_row[self.nodes.node[cause]])

    def _transfer(self, cause: int, last: int, busy: float) -> Segment:
        events = self.line.events
        duration = float(self.end[cause] - self.start[last])
        overlapped = min(max(busy - float(self.start[last]), 0.0), duration)
        return Segment(
            int(events.ranks[events.rank[cause]]),
            TRANSFER,
            str(events.op[cause]),
            duration,
            overlapped,
            cause,
            int(events.ranks[events.rank[last]]),
        )

    def _segment(self, row: int, kind: str, duration: float) -> Segment:
        events = self.line.events
        return Segment(int(events.ranks[events.rank[row]]), kind, str(events.op[row]), duration)


def _last_rows(node: Ints, start: Floats) -> Ints:
    """For each node of the graph the event that arrived last."""
    order = np.lexsort((start, node))
    result = np.zeros(int(node.max()) + 1, dtype=np.int64)
    result[node[order]] = order  # later entries of the same node win
    return result
