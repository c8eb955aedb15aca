"""What-if: the run as a dependency graph over all ranks, replayed with some of its parts fixed.

    start(i) = max(free(anchor(i)) + work(i), end(after(i)) + lag(i))
    end(c)   = max over members i of c of start(i)  +  transfer(c)
    free(i)  = max(end(c), start(i) + overlap(i))

Members leave a collective within microseconds of each other, which adds up over thousands of them: each member's end has a
tail, end(i) - (last start + transfer), as it was recorded on the cluster clock, at most as long as the transfer, and shorter
as the transfer becomes shorter.

Of buffered messages (metrics/communication/p2p.py) the sender continues, the receiver waits for the arrival.

Work, transfers and overlaps are what was measured, or what a fix puts in their place. The graph is evaluated level by
level: all collectives whose predecessors are known are evaluated in one NumPy call, so the cost grows with the length
of the program, hardly with the number of ranks. The replay of the unchanged run is nearly exact by construction and proves
nothing; prediction.py says how well the graph predicts steps that it was not made of.

Where events of different collectives were taken for one, dependencies run in circles. Of those, the ones that run against the
clock are cut (`contradictions` counts them), and what lost its predecessor starts when it was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.comm_events import Ints
from paceline.metrics.timeline.rank_timeline import Timeline

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
        self._edges = _without_circles(timeline, self.nodes)
        self._order = _evaluation_order(timeline, self.nodes, self._edges)

    @property
    def contradictions(self) -> int:
        """How many dependencies had to be cut."""
        return self._edges.cut

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
        tail = self._tails_of(costs) if residuals is None else residuals.tail
        lag: Floats = self.timeline.lag.astype(np.float64) if residuals is None else residuals.lag
        order, taken = self._order, np.concatenate([costs.transfer, self.nodes.hold])
        work, overlap, tail, lag = (values[order.rows] for values in (costs.work, costs.overlap, tail, lag))
        message = costs.transfer[order.instance]
        start, end = np.zeros(len(order.rows)), np.zeros(len(order.rows))
        free = np.concatenate([start, self.timeline.begin])
        for level in order.levels:
            here = level.events
            arrival = free[order.before[here]] + work[here]
            if (torn := level.torn) is not None:
                arrival[torn] = order.recorded[here][torn]
            if (waits := level.waits) is not None:
                second = end[order.after[here][waits]] + lag[here][waits]
                arrival[waits] = np.maximum(arrival[waits], second)
            last = np.maximum.reduceat(arrival, level.edges)
            finished: Floats = np.repeat(last + taken[level.nodes], level.sizes) + tail[here]
            start[here] = arrival
            if (receives := level.receives) is not None:
                arrived = start[order.sender[here][receives]] + message[here][receives]
                finished[receives] = np.maximum(finished[receives], arrived)
            end[here] = finished
            free[here] = np.maximum(finished, arrival + overlap[here])
        return self._outcome(order.by_row(start), order.by_row(end))

    def _tails_of(self, costs: Costs) -> Floats:
        """Tails as recorded, shorter where the transfer is: members leave one after the other as the last pieces reach them."""
        instance, before = self.timeline.events.instance, self.costs.transfer
        left = np.divide(costs.transfer, before, out=np.ones_like(before), where=before > 0)
        shorter: Floats = self._tail.astype(np.float64) * np.minimum(1.0, left)[instance]
        return shorter

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
class _Edges:
    """The predecessors of each event that are kept (-1 = none), and the longest chain before each node."""

    anchor: Ints
    after: Ints
    sender: Ints
    depth: Ints
    cut: int = 0

    def pairs(self, nodes: Nodes) -> tuple[Ints, Ints]:
        """Pairs of nodes, (later, earlier), one per dependency between different nodes."""
        kept = (self.anchor, self.after, self.sender)
        rows = np.concatenate([np.flatnonzero(before >= 0) for before in kept])
        before = np.concatenate([before[before >= 0] for before in kept])
        later, earlier = nodes.node[rows], nodes.node[before]
        different = later != earlier
        return later[different], earlier[different]


def _without_circles(line: Timeline, nodes: Nodes) -> _Edges:
    """All dependencies; where some run in circles, only those of them that go with the clock."""
    edges = _Edges(line.anchor, line.after, nodes.sender, np.zeros(0, dtype=np.int64))
    last = nodes.last_start(line.events.start)
    later, earlier = edges.pairs(nodes)
    depth = _depths(later, earlier, last)
    if depth is not None:
        return replace(edges, depth=depth)
    circular = _in_or_behind_circles(later, earlier, nodes.count)
    order = np.empty(nodes.count, dtype=np.int64)
    order[np.argsort(last, kind="stable")] = np.arange(nodes.count)

    def kept(before: Ints) -> Ints:
        here, there = nodes.node, nodes.node[np.maximum(before, 0)]
        against = circular[here] & circular[there] & (order[there] > order[here])
        return np.where(against, -1, before)

    remaining = replace(edges, anchor=kept(edges.anchor), after=kept(edges.after), sender=kept(edges.sender))
    settled = _depths(*remaining.pairs(nodes), last, passes=nodes.count + 1)
    assert settled is not None, "what ascends in one order has no circle"
    return replace(remaining, depth=settled, cut=len(later) - len(remaining.pairs(nodes)[0]))


def _in_or_behind_circles(later: Ints, earlier: Ints, count: int) -> NDArray[np.bool_]:
    """Nodes that never become ready when every node waits for all its predecessors."""
    waiting = np.bincount(later, minlength=count)
    order = np.argsort(earlier, kind="stable")
    followers, begins = later[order], np.searchsorted(earlier[order], np.arange(count + 1))
    ready = np.flatnonzero(waiting == 0).tolist()
    while ready:
        node = ready.pop()
        for follower in followers[begins[node] : begins[node + 1]].tolist():
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    return np.asarray(waiting > 0)


def _depths(later: Ints, earlier: Ints, last: Ints, *, passes: int = 64) -> Ints | None:
    """Longest chain before each node: relaxed in order of time, again where time and order disagree.

    None where that does not end: in a circle it never does.
    """
    order = np.argsort(last[later], kind="stable")
    pairs = list(zip(later[order].tolist(), earlier[order].tolist(), strict=True))
    values = [0] * len(last)
    for _ in range(passes):
        changed = False
        for after, before in pairs:
            if values[after] <= values[before]:
                values[after] = values[before] + 1
                changed = True
        if not changed:
            return np.array(values, dtype=np.int64)
    return None


@dataclass(frozen=True)
class _Level:
    """Nodes that can be evaluated together, with their events in a row; places are those in `events`, None = no event."""

    events: slice
    edges: Ints
    sizes: Ints
    nodes: Ints
    torn: Ints | None
    """Places that lost their predecessor: they start when they were recorded."""
    waits: Ints | None
    """Places with a second predecessor."""
    receives: Ints | None
    """Places that wait for a message: they end no sooner than it arrives."""


@dataclass(frozen=True)
class _EvaluationOrder:
    """Events in the order of evaluation, so that each level is a slice; `before`, `after` and `sender` are places in it."""

    rows: Ints
    before: Ints
    """The anchor; beyond the events, the begin of the rank's first step."""
    after: Ints
    sender: Ints
    instance: Ints
    recorded: Ints
    """When each event started."""
    levels: list[_Level]

    def by_row(self, values: Floats) -> Floats:
        """Values of the events in the order of the timeline."""
        result = np.empty_like(values)
        result[self.rows] = values
        return result


def _evaluation_order(line: Timeline, nodes: Nodes, edges: _Edges) -> _EvaluationOrder:
    """Nodes by the length of the longest chain before them."""
    depth, events = edges.depth[nodes.node], line.events
    rows = np.lexsort((nodes.node, depth))
    place = np.empty(len(rows), dtype=np.int64)
    place[rows] = np.arange(len(rows))

    def placed(before: Ints) -> Ints:
        return np.where(before >= 0, place[before], -1)[rows]

    after, sender = placed(edges.after), placed(edges.sender)
    before = np.where(line.anchor >= 0, place[line.anchor], len(rows) + events.rank)[rows]
    torn = ((line.anchor >= 0) & (edges.anchor < 0))[rows]
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(depth[rows])) + 1, [len(rows)]])
    chosen = [_by_level(marked, cuts) for marked in (torn, after >= 0, sender >= 0)]
    node = nodes.node[rows]
    levels = [
        _level(slice(begin, end), node, *places)
        for begin, end, *places in zip(cuts[:-1].tolist(), cuts[1:].tolist(), *chosen, strict=True)
        if end > begin
    ]
    return _EvaluationOrder(rows, before, after, sender, nodes.instance[rows], events.start[rows], levels)


def _by_level(marked: NDArray[np.bool_], cuts: Ints) -> list[Ints | None]:
    """Of each level the places in it that are marked; None where none is."""
    found = np.flatnonzero(marked)
    bounds = np.searchsorted(found, cuts).tolist()
    return [
        found[first:last] - begin if last > first else None
        for first, last, begin in zip(bounds, bounds[1:], cuts.tolist()[:-1], strict=False)
    ]


def _level(events: slice, node: Ints, torn: Ints | None, waits: Ints | None, receives: Ints | None) -> _Level:
    numbers = node[events]
    edges = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1]).astype(np.int64)
    sizes = np.diff(np.concatenate([edges, [len(numbers)]]))
    return _Level(events, edges, sizes, numbers[edges], torn, waits, receives)
