"""The timeline of traces that record every operation by name, from their dependency graph.

Traces of the straggler study hold computing and communication by name, so that the study's graph tells for each operation
what it waits for (operation_graph.py). Here the same graph becomes a Timeline, for the rules and the replay:

- computing is a row of its own, alone in its instance: it transfers nothing, and covers (`overlap`) its duration;
- it is the critical stream, together with what only comes before the first forward or after the last backward; messages, and
  gradients that are summed during backward, run on side streams;
- of what an operation follows, `anchor` is the computing (of a message: what had just ended when it was posted) and
  `after` the message or collective;
- a wait for others that no operation records is sought first, and becomes a row of its own (hidden_joins.py);
- what then lies between the last of them and its own start is launch delay, as far as that place of the program usually
  has it: `work`, and `lag`. More than that is `unknown` waiting, because no recorded work covers it; a receive that is
  posted late costs nothing, it would have waited.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paceline.core.errors import PacelineError
from paceline.metrics.communication.comm_events import COMPUTING, Bools, CommEvents, Ints
from paceline.metrics.table import RunTables
from paceline.metrics.timeline.hidden_joins import with_hidden_joins
from paceline.metrics.timeline.operation_graph import (
    JOINS,
    Operation,
    OperationGraph,
    RecordedSteps,
    cached_operation_graph,
    over_replicas,
)
from paceline.metrics.timeline.rank_timeline import Floats, Timeline

FORMAT = "osdi-straggler"
SAME_NS = 1_000
"""Two moments this close are one: the traces hold 32-bit floats."""

UNRECORDED = "unrecorded wait"
"""The group key of joins."""


def operation_timeline(run: RunTables, chosen: tuple[int, ...] | None = None) -> Timeline | None:
    """The timeline of a run in the study's format; None for all others, and where no step is whole."""
    if not is_operation_trace(run):
        return None
    try:
        graph = cached_operation_graph(run)
    except PacelineError:
        return None
    if graph.steps is None or (chosen is not None and not set(chosen) & set(graph.steps.numbers)):
        return None
    return _OperationRows(with_hidden_joins(graph), graph.steps, chosen).timeline()


def is_operation_trace(run: RunTables) -> bool:
    """Whether all ranks of a run are in the study's format."""
    # Re-encoded, a run still says in which format each rank was recorded.
    return run.formats == [FORMAT] or run.sql("SELECT DISTINCT format FROM ranks").fetchall() == [(FORMAT,)]


class _OperationRows:
    """Rows are operations × (replica, step), then the ends of steps; sorted by rank and start at last."""

    def __init__(self, graph: OperationGraph, steps: RecordedSteps, chosen: tuple[int, ...] | None) -> None:
        self.graph = graph
        self.kept = [i for i, step in enumerate(steps.numbers) if chosen is None or step in chosen]
        self.numbers = np.array([steps.numbers[i] for i in self.kept], dtype=np.int64)
        self.begins = steps.begins[self.kept]
        self.ranks = np.array(sorted(steps.ranks.values()), dtype=np.int64)
        self.operations = [operation for together in graph.together for operation in together]
        self.row_of = {operation: place for place, operation in enumerate(self.operations)}
        places = {rank: place for place, rank in enumerate(self.ranks.tolist())}
        replicas = range(graph.shape[0])
        self.rank_of_worker = np.array(
            [[places[steps.ranks[stage, replica]] for replica in replicas] for stage in range(graph.stages)]
        )
        self.cells = graph.shape[0] * len(self.kept)

    def timeline(self) -> Timeline:
        start, end = self._times("start"), self._times("end")
        anchor, after = self._before()
        rank, step = self._who()
        computes = np.repeat([not self.graph.operations[o].communicates for o in self.operations], self.cells)
        ready = np.where(anchor >= 0, end[anchor], self._begin_of(rank, step, start, end))
        ready = np.where(after >= 0, np.maximum(ready, end[after]), ready)
        gap = np.maximum(0, start - ready)
        delay = self._usual(gap)
        final, end_of_step = self._last_of_step(rank, step, end)
        previous = np.where(step > 0, end_of_step[rank, np.maximum(step - 1, 0)], -1)
        anchor = np.where(anchor >= 0, anchor, previous)
        ends = len(final)
        order_rank, order_step = np.concatenate([rank, rank[final]]), np.concatenate([step, step[final]])
        starts = np.concatenate([start, end[final]])
        order = np.lexsort((np.arange(len(starts)), starts, order_step, order_rank))
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))

        def moved(rows: Ints) -> Ints:
            """Numbers of rows, after sorting."""
            joined: Ints = np.where(rows >= 0, back[rows], -1)[order]
            return joined

        none = np.zeros(ends, dtype=np.int64)
        overlap = np.concatenate([np.where(computes, end - start, 0), none])[order]
        work = np.concatenate([delay, none])[order]
        unknown = np.concatenate([np.where(self._receives(), 0, gap - delay), none])[order]
        anchors = moved(np.concatenate([anchor, final]))
        instance = np.concatenate([self._instances(), self._instance_count + np.arange(ends)])[order]
        return Timeline(
            events=CommEvents(
                ranks=self.ranks,
                rank=order_rank[order],
                step=self.numbers[order_step[order]],
                group_key=np.concatenate([self._names("group_key"), np.full(ends, None, dtype=object)])[order],
                op=np.concatenate([self._names("op"), np.full(ends, "step_end", dtype=object)])[order],
                start=starts[order],
                end=np.concatenate([np.where(computes, start, end), end[final]])[order],
                bytes=np.full(len(order), -1),
                instance=np.unique(instance, return_inverse=True)[1].astype(np.int64),
            ),
            steps=self.numbers,
            step=order_step[order],
            is_end=(order >= len(rank)),
            side_stream=np.concatenate([self._on_side_stream(), np.zeros(ends, dtype=np.bool_)])[order],
            overlap=overlap,
            anchor=anchors,
            work=work,
            after=moved(np.concatenate([after, none - 1])),
            lag=work,
            begin=self._first_begin(rank, step, start),
            known=np.ones(end_of_step.shape, dtype=np.bool_),
            place=np.concatenate([self._places(), none - 1])[order] + 1,
            self_time_until=_summed(anchors, work, overlap),
            unknown=unknown,
            computed=np.zeros(len(work), dtype=np.int64),
            level="operations",
        )

    def _times(self, what: str) -> Ints:
        """ns on the cluster clock, operation by operation."""
        recorded = [getattr(self.graph.operations[operation], what)[:, self.kept] for operation in self.operations]
        times: Ints = np.rint(np.stack(recorded) + self.begins[None, None, :]).astype(np.int64).ravel()
        return times

    def _who(self) -> tuple[Ints, Ints]:
        replicas, steps = self.graph.shape[0], len(self.kept)
        stage = np.array([operation.stage for operation in self.operations])
        rank = np.repeat(self.rank_of_worker[stage][:, :, None], steps, axis=2).ravel()
        return rank.astype(np.int64), np.tile(np.arange(steps), len(self.operations) * replicas)

    def _before(self) -> tuple[Ints, Ints]:
        """Rows of what each row follows: the computing, and the message or collective; -1 = none."""
        inside = np.arange(self.cells)
        anchors, afters = [], []
        for operation in self.operations:
            anchor, after = self._two(self.graph.follows[operation])
            if operation in self._messages:
                anchor = self._posted_after(operation) or anchor
            anchors.append(self.row_of[anchor] * self.cells + inside if anchor else np.full(self.cells, -1))
            afters.append(self.row_of[after] * self.cells + inside if after else np.full(self.cells, -1))
        return np.concatenate(anchors), np.concatenate(afters)

    def _two(self, before: list[Operation]) -> tuple[Operation | None, Operation | None]:
        """The last computing and the last communication of these; a lone collective of the critical stream is the anchor."""
        last = sorted(before, key=lambda operation: float(np.median(self.graph.operations[operation].end)))
        computing = [o for o in last if not self.graph.operations[o].communicates]
        communication = [o for o in last if self.graph.operations[o].communicates]
        if not computing:
            computing = [o for o in communication if o not in self._side_stream_names][-1:]
            communication = [o for o in communication if o not in computing]
        return computing[-1] if computing else None, communication[-1] if communication else None

    def _posted_after(self, message: Operation) -> Operation | None:
        """The computing that had just ended: frameworks that send and receive in one call post receives with the next send."""
        begun = float(np.median(self.graph.operations[message].start)) + SAME_NS
        ended = [(end, computing) for end, computing in self._computing[message.stage] if end <= begun]
        return max(ended)[1] if ended else None

    @cached_property
    def _computing(self) -> dict[int, list[tuple[float, Operation]]]:
        """Forward and backward of each stage, with their median ends."""
        found: dict[int, list[tuple[float, Operation]]] = defaultdict(list)
        for operation in self.operations:
            if operation.name.endswith("-compute"):
                found[operation.stage].append((float(np.median(self.graph.operations[operation].end)), operation))
        return found

    @cached_property
    def _messages(self) -> set[Operation]:
        return {operation for operation in self.operations if operation.name.endswith(("-send", "-recv"))}

    @cached_property
    def _side_stream_names(self) -> set[Operation]:
        """Messages, and gradients that are summed before the last backward ends."""
        recorded = self.graph.operations
        closed = {
            o.stage: max(
                float(np.median(recorded[other].start))
                for other in self.operations
                if other.stage == o.stage and other.name == "backward-compute"
            )
            for o in self.operations
            if o.name == "backward-compute"
        }
        return {
            o
            for o in self.operations
            if o in self._messages
            or (o.name.startswith("grads-") and float(np.median(recorded[o].start)) < closed.get(o.stage, -np.inf))
        }

    def _on_side_stream(self) -> Bools:
        return np.repeat([operation in self._side_stream_names for operation in self.operations], self.cells)

    def _receives(self) -> Bools:
        return np.repeat([operation.name.endswith("-recv") for operation in self.operations], self.cells)

    def _usual(self, gap: Ints) -> Ints:
        """Of each gap what its operation has at that place in half of all replicas and steps; receives have none."""
        gaps = gap.reshape(len(self.operations), self.cells)
        usual = np.minimum(gaps, np.median(gaps, axis=1).astype(np.int64)[:, None]).ravel()
        kept: Ints = np.where(self._receives(), 0, usual)
        return kept

    def _names(self, what: str) -> NDArray[np.object_]:
        names = {"forward-send": "send", "backward-send": "send", "forward-recv": "receive", "backward-recv": "receive"}
        texts = [names.get(o.name, o.name) if what == "op" else _group_key(o) for o in self.operations]
        if what == "op":
            return np.repeat(np.array(texts, dtype=object), self.cells)
        replicas = np.repeat(np.arange(self.graph.shape[0]), len(self.kept))
        each = [[text.format(replica=replica) for replica in replicas.tolist()] for text in texts]
        return np.array([name for row in each for name in row], dtype=object)

    def _places(self) -> Ints:
        codes: dict[tuple[str, int], int] = {}
        return np.repeat(
            [codes.setdefault((o.name, o.number), len(codes)) for o in self.operations], self.cells
        ).astype(np.int64)

    def _instances(self) -> Ints:
        """One number per collective: operations together, by step, and by replica unless all take part."""
        steps = len(self.kept)
        replica, step = np.divmod(np.arange(self.cells), steps)
        blocks, used = [], 0
        for together in self.graph.together:
            block = used + (step if over_replicas(together[0]) else replica * steps + step)
            blocks += [block] * len(together)
            used += self.cells
        self._instance_count = used
        return np.concatenate(blocks)

    def _last_of_step(self, rank: Ints, step: Ints, end: Ints) -> tuple[Ints, Ints]:
        """The row each rank's step ends with, and the row of that end, ranks × steps."""
        order = np.lexsort((end, step, rank))
        keys = rank[order] * len(self.kept) + step[order]
        final = order[np.flatnonzero(np.diff(keys, append=-1))]
        row = np.full((len(self.ranks), len(self.kept)), -1, dtype=np.int64)
        row[rank[final], step[final]] = len(rank) + np.arange(len(final))
        return final, row

    def _begin_of(self, rank: Ints, step: Ints, start: Ints, end: Ints) -> Ints:
        """When what follows nothing could have begun: the end of the rank's step before, or its first moment."""
        shape = (len(self.ranks), len(self.kept))
        last = np.full(shape, np.iinfo(np.int64).min)
        np.maximum.at(last, (rank, step), end)
        before = np.concatenate([self._first_begin(rank, step, start)[:, None], last[:, :-1]], axis=1)
        begin: Ints = before[rank, step]
        return begin

    def _first_begin(self, rank: Ints, step: Ints, start: Ints) -> Ints:
        begin = np.full(len(self.ranks), np.iinfo(np.int64).max)
        first = step == 0
        np.minimum.at(begin, rank[first], start[first])
        return begin


def _group_key(operation: Operation) -> str:
    """The group as formats/osdi/tables.py names it; computing has one of its own."""
    if operation.name in JOINS:
        return UNRECORDED
    if operation.name.endswith(("-send", "-recv")):
        return "pp-dp{replica}"
    if operation.name == "optimizer-clip-main-grad":
        return "world"
    if operation.name == "embedding-grads-all-reduce":
        return "embedding-dp{replica}"
    if operation.name == "layernorm-grads-all-reduce":
        return f"tp-dp{{replica}}-stage{operation.stage}"
    return f"dp-stage{operation.stage}" if over_replicas(operation) else COMPUTING


def _summed(anchor: Ints, work: Ints, overlap: Ints) -> Floats:
    """Self time when each row was reached: own(anchor) + overlap(anchor) + work; anchors come first."""
    own = [0.0] * len(anchor)
    works, overlaps = work.tolist(), overlap.tolist()
    for row, before in enumerate(anchor.tolist()):
        own[row] = works[row] + (own[before] + overlaps[before] if before >= 0 else 0.0)
    return np.array(own)
