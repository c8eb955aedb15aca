"""The dependency graph of traces that name every operation (the OSDI'25 straggler study): what each one waits for.

An operation is (name, number in its step, stage); what is known of it is an array over replicas × steps, so the graph is
built once for all replicas and steps. An operation o follows

- the operation before it in its stream (computing, each direction of each kind of message, gradients and parameters, the
  end of the step);
- computing: the message it needs, and the parameters of its chunk of the model if it is the first of that chunk;
- a message: the computing that makes it; a receive also the computing before the one that needs it.

Stages of interleaved pipelines hold several chunks; formats/osdi/messages.py tells whose messages are whose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.core.errors import PacelineError
from paceline.formats.osdi.messages import MATCHED
from paceline.metrics.table import RunTables

Floats = NDArray[np.float64]

_PASSES = {"forward": 1, "backward": -1}
"""Towards which stage each pass sends."""
_COLLECTING = "gc"
"""Python's collection of garbage, after the last backward."""
_GRADIENTS = ("grads-reduce-scatter", "grads-all-reduce")
_REST = "separate-grads-all-reduce"
"""Gradients that are summed last, where the others are summed during backward."""
JOINS = ("join-replicas", "join-stages", "join-all")
"""Waits for others that no operation records (hidden_joins.py): for all replicas, all stages of a replica, everybody."""
_OVER_REPLICAS = {*_GRADIENTS, _REST, "params-all-gather", "optimizer-clip-main-grad", JOINS[0], JOINS[2]}
_OVER_STAGES = {"embedding-grads-all-reduce", "optimizer-clip-main-grad", JOINS[1], JOINS[2]}


class Operation(NamedTuple):
    name: str
    number: int
    """Which of that name in its step."""
    stage: int


@dataclass(frozen=True)
class Recorded:
    """When an operation began and ended, ns from the begin of its step; replicas × steps."""

    start: Floats
    end: Floats
    communicates: bool
    chunk: int = 0
    """Which of its stage's chunks of the model."""
    serves: int | None = None
    """A message: the number of the computing that needs or makes it."""
    message: int | None = None
    """Its number among the messages that have another side."""


@dataclass(frozen=True)
class RecordedSteps:
    """The steps that count, and which rank is which worker."""

    numbers: tuple[int, ...]
    begins: Floats
    """ns on the cluster clock."""
    ranks: dict[tuple[int, int], int]
    """By stage and replica."""


class OperationGraph:
    """The operations of one run and their dependencies; arrays are replicas × steps."""

    def __init__(
        self,
        operations: dict[Operation, Recorded],
        steps: RecordedSteps | None = None,
        follows: dict[Operation, list[Operation]] | None = None,
    ) -> None:
        self.operations = operations
        self.steps = steps
        self.stages = 1 + max(operation.stage for operation in operations)
        self.shape: tuple[int, int] = next(iter(operations.values())).start.shape
        self._other_side = _other_sides(operations, self.stages)
        self.follows = _follows(operations) if follows is None else follows
        self.together = _order({operation: self.members(operation) for operation in operations}, self.follows)

    def members(self, operation: Operation) -> tuple[Operation, ...]:
        """The operations of one replica that form a collective, or a message, with this one."""
        name, number, _ = operation
        if name in _OVER_STAGES:
            everyone = (Operation(name, number, stage) for stage in range(self.stages))
            return tuple(member for member in everyone if member in self.operations)
        other = self._other_side.get(operation)
        return tuple(sorted((operation, other))) if other else (operation,)


def over_replicas(operation: Operation) -> bool:
    """Whether all replicas take part in it together."""
    return operation.name in _OVER_REPLICAS


def cached_operation_graph(run: RunTables) -> OperationGraph:
    """The graph of a run, read once."""
    known = run.derived.get("operation_graph")
    if not isinstance(known, OperationGraph):
        known = run.derived["operation_graph"] = read_operation_graph(run)
    return known


def read_operation_graph(run: RunTables) -> OperationGraph:
    """The graph of a run whose operations have the study's names (format osdi-straggler)."""
    run.load(["ranks", "steps", "kernels", "collectives", "events"])
    rows = run.sql(_OPERATIONS).fetchall()
    if not rows:
        raise PacelineError("no step holds all operations of all workers with the names of the straggler study")
    steps = {step: place for place, step in enumerate(sorted({row[4] for row in rows}))}
    shape = (1 + max(row[3] for row in rows), len(steps))
    operations: dict[Operation, Recorded] = {}
    begins, ranks = np.zeros(len(steps)), {}
    for name, number, stage, replica, step, start, end, communicates, *role, rank, begin in rows:
        begins[steps[step]], ranks[stage, replica] = begin, rank
        key = Operation(name, number, stage)
        if key not in operations:
            operations[key] = Recorded(np.full(shape, np.nan), np.full(shape, np.nan), communicates, *role)
        operations[key].start[replica, steps[step]] = start
        operations[key].end[replica, steps[step]] = end
    return OperationGraph(operations, RecordedSteps(tuple(steps), begins, ranks))


_OPERATIONS = f"""
    WITH workers AS (
        SELECT rank, stage, dense_rank() OVER (PARTITION BY stage ORDER BY rank) - 1 AS replica
        FROM ranks WHERE stage IS NOT NULL
    ), everything AS (
        SELECT rank, step, name, start, duration, false AS communicates FROM kernels WHERE step IS NOT NULL
        UNION ALL
        SELECT rank, step, name, start, duration, true FROM collectives WHERE step IS NOT NULL
        UNION ALL
        SELECT rank, step, name, events.start, events.duration, false
        FROM (SELECT * FROM events WHERE name = '{_COLLECTING}') AS events JOIN steps USING (rank)
        WHERE events.start >= steps.start AND events.start < steps."end"
    ), chunked AS (
        SELECT *, split_part(name, ' #', 1) AS optype, coalesce(TRY_CAST(split_part(name, ' #', 2) AS BIGINT), 0) AS chunk,
               row_number() OVER () AS operation
        FROM everything JOIN workers USING (rank)
    ), operations AS (
        SELECT *, chunk * stages + stage AS gmc, chunks * stages AS model_chunks
        FROM chunked CROSS JOIN (SELECT max(stage) + 1 AS stages, max(chunk) + 1 AS chunks FROM chunked)
    ), begins AS (
        SELECT step, min(start) AS begin FROM operations GROUP BY step
    ), {MATCHED}, numbered AS (
        SELECT optype, row_number() OVER (PARTITION BY rank, step, optype ORDER BY start) - 1 AS number, stage, replica,
               step, start - begin AS start, start - begin + duration AS end, communicates, chunk, serves, message, rank, begin
        FROM operations LEFT JOIN matched USING (operation) JOIN begins USING (step)
    ), complete AS (
        -- A step counts when every worker recorded everything that the workers of its stage ever do.
        SELECT step FROM numbered GROUP BY step
        HAVING count(*) = (SELECT count(*) FROM (SELECT DISTINCT optype, number, stage, replica FROM numbered))
    )
    SELECT * FROM numbered SEMI JOIN complete USING (step) ORDER BY step, replica, stage, start
"""


def _other_sides(operations: dict[Operation, Recorded], stages: int) -> dict[Operation, Operation]:
    """The receive of each send and the send of each receive: equal numbers among the real messages between two stages."""
    ends = {
        (operation.name, recorded.message, operation.stage): operation
        for operation, recorded in operations.items()
        if recorded.message is not None
    }
    found = {}
    for (name, message, stage), operation in ends.items():
        direction, _, kind = name.partition("-")
        toward = _PASSES[direction] if kind == "send" else -_PASSES[direction]
        side = f"{direction}-{'recv' if kind == 'send' else 'send'}"
        other = ends.get((side, message, (stage + toward) % stages))
        if other is None:
            raise PacelineError(
                f"{name} {operation.number} of stage {stage} has no other side; the trace is incomplete"
            )
        found[operation] = other
    return found


def _follows(operations: dict[Operation, Recorded]) -> dict[Operation, list[Operation]]:
    """What each operation must wait for on its own worker."""
    follows: dict[Operation, list[Operation]] = {operation: [] for operation in operations}
    for stage in sorted({operation.stage for operation in operations}):
        here = _in_order(operations, (operation for operation in operations if operation.stage == stage))
        computing = _named(here, "forward-compute", "backward-compute")
        _chain(follows, computing)
        _chain(follows, _named(here, "params-all-gather", *_GRADIENTS))
        for name in (f"{direction}-{kind}" for direction in _PASSES for kind in ("send", "recv")):
            _chain(follows, _named(here, name))
        _serve(follows, operations, here)
        _await_parameters(follows, operations, here)
        _open_backward(follows, computing, here)
        _close(follows, operations, here)
    return follows


def _serve(
    follows: dict[Operation, list[Operation]], operations: dict[Operation, Recorded], here: list[Operation]
) -> None:
    """Messages with the computing that needs or makes them."""
    for message in here:
        serves = operations[message].serves
        if serves is None:
            continue
        direction, _, kind = message.name.partition("-")
        compute = Operation(f"{direction}-compute", serves, message.stage)
        if kind == "send":
            follows[message].append(compute)
            continue
        follows[compute].append(message)
        if serves:
            follows[message].append(compute._replace(number=serves - 1))


def _await_parameters(
    follows: dict[Operation, list[Operation]], operations: dict[Operation, Recorded], here: list[Operation]
) -> None:
    """The first forward of each chunk needs all parameters of that chunk."""
    last = {operations[gather].chunk: gather for gather in _named(here, "params-all-gather")}
    for forward in _named(here, "forward-compute"):
        gather = last.pop(operations[forward].chunk, None)
        if gather:
            follows[forward].append(gather)


def _open_backward(
    follows: dict[Operation, list[Operation]], computing: list[Operation], here: list[Operation]
) -> None:
    """The first messages of the backward pass are posted one computing before the last forward of the warm-up."""
    first = next((place for place, compute in enumerate(computing) if compute.name == "backward-compute"), 0)
    if first >= 2:
        for message in here:
            if message.name in ("backward-send", "backward-recv") and message.number == 0:
                follows[message].append(computing[first - 2])


def _close(
    follows: dict[Operation, list[Operation]], operations: dict[Operation, Recorded], here: list[Operation]
) -> None:
    """What follows the last backward; gradients are summed there, or during backward where only the rest is left."""
    computing = _named(here, "forward-compute", "backward-compute")
    gradients, rest = _named(here, *_GRADIENTS), _named(here, _REST)
    collecting = _named(here, _COLLECTING)
    sums = _named(here, "layernorm-grads-all-reduce") + _named(here, "embedding-grads-all-reduce")
    end = _named(here, "optimizer-clip-main-grad") + _named(here, "optimizer")
    closing = [*sums, *(rest or gradients), *end]
    _chain(follows, [*computing, *collecting, *closing])
    if rest:
        _chain(follows, [*gradients, *closing])
        for chunk in {operations[summed].chunk for summed in gradients}:
            first = next(summed for summed in gradients if operations[summed].chunk == chunk)
            last = [back for back in _named(computing, "backward-compute") if operations[back].chunk == chunk]
            _chain(follows, [*last[-1:], first])


def _named(here: list[Operation], *names: str) -> list[Operation]:
    return [operation for operation in here if operation.name in names]


def _in_order(operations: dict[Operation, Recorded], chosen: Iterable[Operation]) -> list[Operation]:
    """By their median start in a step."""
    return sorted(chosen, key=lambda operation: float(np.median(operations[operation].start)))


def _chain(follows: dict[Operation, list[Operation]], stream: list[Operation]) -> None:
    for before, after in pairwise(stream):
        if before not in follows[after]:
            follows[after].append(before)


def _order(
    members: dict[Operation, tuple[Operation, ...]], follows: dict[Operation, list[Operation]]
) -> list[tuple[Operation, ...]]:
    """Collectives, messages and single operations, each after everything that its members follow."""
    graph = {
        together: {members[before] for member in together for before in follows[member]}
        for together in dict.fromkeys(members.values())
    }
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise PacelineError("the operations wait for each other in a circle; this pipeline is not modelled") from error
