"""What-if: the run as a dependency graph over all ranks, replayed with some of its parts fixed.

    start(i) = max(free(anchor(i)) + work(i), end(after(i)) + lag(i))
    end(c)   = max over members i of c of start(i)  +  transfer(c)
    free(i)  = max(end(c), start(i) + overlap(i))

Members leave a collective within microseconds of each other, which adds up over thousands of them: each member's end has a
tail, end(i) - (last start + transfer), as it was recorded on the cluster clock, at most as long as the transfer.

Of buffered messages (metrics/p2p.py) the sender continues, the receiver waits for the arrival.

Work, transfers and overlaps are what was measured, or what a fix puts in their place. The graph is evaluated level by
level: all collectives whose predecessors are known are evaluated in one NumPy call, so the cost grows with the length
of the program, hardly with the number of ranks. The replay of the unchanged run is nearly exact by construction and proves
nothing; prediction.py says how well the graph predicts steps that it was not made of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.comm_events import Ints
from paceline.metrics.rank_timeline import Timeline

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Costs:
    """What a replay is made of, in ns; a fix returns changed copies."""

    work: Floats
    transfer: Floats
    overlap: Floats

    def with_transfer(self, transfer: Floats) -> Costs:
        return replace(self, transfer=transfer)


@dataclass(frozen=True)
class Residuals:
    """What no recorded work or transfer explains, in ns: when members leave their collective, and gaps behind side streams."""

    tail: Floats
    lag: Floats


@dataclass(frozen=True)
class ReplayResult:
    """When everything happened in a replay."""

    start: Floats
    end: Floats
    step_ends: Floats
    """ranks × steps, ns; nan where a rank did not record the step."""
    begin: Floats

    @cached_property
    def step_times(self) -> Floats:
        """ns per step: the mean over ranks of end(n) - end(n-1)."""
        previous = np.concatenate([self.begin[:, None], self.step_ends[:, :-1]], axis=1)
        lengths = self.step_ends - previous
        counted = np.maximum(1, (~np.isnan(lengths)).sum(axis=0))
        means: Floats = np.nan_to_num(lengths).sum(axis=0) / counted
        return means

    @property
    def step_time(self) -> float:
        """The typical step: the median over steps."""
        return float(np.median(self.step_times)) if len(self.step_times) else 0.0


class Replay:
    """The compiled graph of a run."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        events = timeline.events
        self.costs = Costs(
            work=timeline.work.astype(np.float64),
            transfer=events.transfer.astype(np.float64),
            overlap=timeline.overlap.astype(np.float64),
        )
        self._tail = _tails(timeline)
        self.nodes = _nodes(timeline)
        self._levels = _levels(timeline, self.nodes)

    @cached_property
    def base(self) -> ReplayResult:
        """The replay of the unchanged run."""
        return self.run(self.costs)

    @cached_property
    def measured(self) -> ReplayResult:
        """The run as it was recorded, in the same shape."""
        events = self.timeline.events
        return self._outcome(events.start.astype(np.float64), events.end.astype(np.float64))

    @property
    def residual(self) -> float:
        """(replayed - measured) / measured step time; near 0 when the graph explains the run."""
        measured = self.measured.step_time
        return (self.base.step_time - measured) / measured if measured else 0.0

    def run(self, costs: Costs, residuals: Residuals | None = None) -> ReplayResult:
        """Replay with these costs, and with the residuals that were recorded unless others are given."""
        tail, lag = (self._tail, self.timeline.lag) if residuals is None else (residuals.tail, residuals.lag)
        line, events = self.timeline, self.timeline.events
        start, end = np.zeros(len(events.rank)), np.zeros(len(events.rank))
        free = np.zeros(len(events.rank) + len(events.ranks))
        free[len(events.rank) :] = line.begin
        before = np.where(line.anchor >= 0, line.anchor, len(events.rank) + events.rank)
        taken = np.concatenate([costs.transfer, self.nodes.hold])
        for level in self._levels:
            rows = level.rows
            arrival = free[before[rows]] + costs.work[rows]
            waited = np.flatnonzero(line.after[rows] >= 0)
            second = end[line.after[rows[waited]]] + lag[rows[waited]]
            arrival[waited] = np.maximum(arrival[waited], second)
            last = np.maximum.reduceat(arrival, level.edges)
            finished: Floats = np.repeat(last + taken[level.nodes], level.sizes) + tail[rows]
            start[rows] = arrival
            self.nodes.arrive(rows, start, costs.transfer, finished)
            end[rows] = finished
            free[rows] = np.maximum(finished, arrival + costs.overlap[rows])
        return self._outcome(start, end)

    def _outcome(self, start: Floats, end: Floats) -> ReplayResult:
        line, events = self.timeline, self.timeline.events
        ends = np.full(line.known.shape, np.nan)
        rows = np.flatnonzero(line.is_end)
        ends[events.rank[rows], line.step[rows]] = start[rows]
        return ReplayResult(start, end, ends, line.begin.astype(np.float64))


@dataclass(frozen=True)
class Nodes:
    """What is evaluated at once: collectives, and each side of a buffered message."""

    node: Ints
    """Of each event; the instance, or a number of its own."""
    count: int
    hold: Ints
    """Of each node beyond the instances: how long that side takes when it does not wait."""
    sender: Ints
    """Of each event: the send whose message it waits for; -1 = none."""
    instance: Ints

    def arrive(self, rows: Ints, start: Floats, transfer: Floats, end: Floats) -> None:
        """Let these rows, if they receive, end no sooner than their messages arrive."""
        places = np.flatnonzero(self.sender[rows] >= 0)
        receives = rows[places]
        end[places] = np.maximum(end[places], start[self.sender[receives]] + transfer[self.instance[receives]])

    def last_start(self, start: Ints) -> Ints:
        last = np.full(self.count, np.iinfo(np.int64).min)
        np.maximum.at(last, self.node, start)
        return last


def _nodes(line: Timeline) -> Nodes:
    events, buffered = line.events, line.events.buffered
    alone = np.concatenate([buffered.sent, buffered.received])
    node, sender = events.instance.copy(), np.full(len(events.instance), -1, dtype=np.int64)
    node[alone] = events.instances + np.arange(len(alone))
    sender[buffered.received] = buffered.sent
    hold = np.concatenate([events.duration[buffered.sent], buffered.hold])
    return Nodes(node, events.instances + len(alone), hold, sender, events.instance)


def _tails(line: Timeline) -> Ints:
    """How much later (or sooner) than the last arrival and the transfer tell each member left its collective, ns."""
    events = line.events
    transfer = events.transfer[events.instance]
    tail: Ints = np.clip(events.end - events.last_start[events.instance] - transfer, -transfer, transfer)
    tail[np.concatenate([events.buffered.sent, events.buffered.received])] = 0
    return tail


@dataclass(frozen=True)
class _Level:
    """Nodes that can be evaluated together, with their events in a row."""

    rows: Ints
    edges: Ints
    sizes: Ints
    nodes: Ints


def _levels(line: Timeline, nodes: Nodes) -> list[_Level]:
    """Nodes by the length of the longest chain before them."""
    depth = _depths(line, nodes)
    order = np.lexsort((nodes.node, depth[nodes.node]))
    sorted_depth = depth[nodes.node][order]
    cuts = np.flatnonzero(np.diff(sorted_depth)) + 1
    return [_level(rows, nodes.node) for rows in np.split(order, cuts) if len(rows)]


def _level(rows: Ints, node: Ints) -> _Level:
    numbers = node[rows]
    edges = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1]).astype(np.int64)
    sizes = np.diff(np.concatenate([edges, [len(rows)]]))
    return _Level(rows, edges, sizes, numbers[edges])


def _depths(line: Timeline, nodes: Nodes) -> Ints:
    """Longest chain before each node: relaxed in order of time, again where time and order disagree."""
    depth = np.zeros(nodes.count, dtype=np.int64)
    later, earlier = _edges(line, nodes)
    order = np.argsort(nodes.last_start(line.events.start)[later], kind="stable")
    later, earlier = later[order], earlier[order]
    for _ in range(64):
        changed = False
        pairs = zip(later.tolist(), earlier.tolist(), strict=True)
        values = depth.tolist()
        for after, before in pairs:
            if values[after] <= values[before]:
                values[after] = values[before] + 1
                changed = True
        depth = np.array(values, dtype=np.int64)
        if not changed:
            return depth
    # Clocks so far off that effect seems to precede cause: what is left is evaluated in the order reached so far.
    return depth


def _edges(line: Timeline, nodes: Nodes) -> tuple[Ints, Ints]:
    """Pairs of nodes, (later, earlier), one per dependency between different nodes."""
    followers = np.flatnonzero(line.anchor >= 0)
    waited = np.flatnonzero(line.after >= 0)
    received = np.flatnonzero(nodes.sender >= 0)
    rows = np.concatenate([followers, waited, received])
    before = np.concatenate([line.anchor[followers], line.after[waited], nodes.sender[received]])
    later, earlier = nodes.node[rows], nodes.node[before]
    different = later != earlier
    return later[different], earlier[different]
