"""Waits for others that no operation records: found by what all ranks of a class have in common when they go on.

An operation that begins long after everything it follows has either worked on something that was not recorded, or waited.
It waited for others if each of its class began when the last of the class had come so far:

    base(o)  = max over operations d that o follows of end(d)
    last(o)  = max over the class of base
    a case   = an execution with last - base > LATE_SHARE of a step, and over LEAST_NS
    explained = |start - last| ≤ FIT · (start - base)

A class is tried where enough cases were recorded, and is accepted where most of them are explained, in each stage by
itself. Classes are everybody, all replicas of a stage, and all stages of a replica; the first that fits is taken. In the
graph such a wait becomes a join: an operation that takes no time and ends for all when the last one has come.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.timeline.operation_graph import JOINS, Operation, OperationGraph, Recorded

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LATE_SHARE = 0.002
LEAST_NS = 1e6
"""Clocks and 32-bit floats are that far off at most."""
FIT = 0.1
MOST = 0.7
FEWEST = 3
"""Cases that can show a pattern."""
SIGNIFICANT = 0.005
"""Positions whose gaps cost less than this share of a step are left alone."""


def with_hidden_joins(graph: OperationGraph) -> OperationGraph:
    """The graph with a join before each operation that waits for others in a way that no operation tells."""
    operations = dict(graph.operations)
    follows = {operation: list(before) for operation, before in graph.follows.items()}
    bases = {operation: base for operation in operations if (base := _base(graph, operation)) is not None}
    step = _step_length(graph)
    done: set[Operation] = set()
    for operation in list(bases):
        if operation in done or not _may_wait(graph, operation, bases[operation], step):
            continue
        for kind, members in _classes(graph, operation, bases):
            if done.isdisjoint(members) and _explains(graph, members, bases, kind, step):
                number = len(done)
                for member in members:
                    join = Operation(kind, number, member.stage)
                    operations[join] = Recorded(bases[member], _last(members, bases, kind)[member], True)
                    follows[join], follows[member] = follows[member], [join]
                done.update(members)
                break
    return OperationGraph(operations, graph.steps, follows) if done else graph


def _base(graph: OperationGraph, operation: Operation) -> Floats | None:
    """When everything was done that it follows; None where it follows nothing, or others are known to decide."""
    before = graph.follows[operation]
    if not before or operation.name.endswith("-recv"):
        return None
    base: Floats = np.maximum.reduce([graph.operations[other].end for other in before])
    return base


def _step_length(graph: OperationGraph) -> float:
    ends = np.maximum.reduce([recorded.end.max(axis=0) for recorded in graph.operations.values()])
    return float(np.median(ends))


def _may_wait(graph: OperationGraph, operation: Operation, base: Floats, step: float) -> bool:
    """Whether its gaps are worth an explanation."""
    gaps = np.maximum(0, graph.operations[operation].start - base)
    return bool(gaps.mean() > SIGNIFICANT * step)


def _classes(
    graph: OperationGraph, operation: Operation, bases: dict[Operation, Floats]
) -> Iterator[tuple[str, tuple[Operation, ...]]]:
    """Kinds of joins it may be a member of, with the operations that would be: largest class first."""
    of_stages = tuple(member for stage in range(graph.stages) if (member := operation._replace(stage=stage)) in bases)
    replicas, stages, everybody = JOINS
    if len(of_stages) > 1 and graph.shape[0] > 1:
        yield everybody, of_stages
    if graph.shape[0] > 1:
        yield replicas, (operation,)
    if len(of_stages) > 1:
        yield stages, of_stages


def _last(members: tuple[Operation, ...], bases: dict[Operation, Floats], kind: str) -> dict[Operation, Floats]:
    """When the last of the class had come, for each member."""
    last: Floats = np.maximum.reduce([bases[member] for member in members])
    if kind != JOINS[1]:
        last = np.broadcast_to(last.max(axis=0), last.shape)
    return dict.fromkeys(members, last)


def _explains(
    graph: OperationGraph, members: tuple[Operation, ...], bases: dict[Operation, Floats], kind: str, step: float
) -> bool:
    last = _last(members, bases, kind)
    cases = 0
    for member in members:
        start, base = graph.operations[member].start, bases[member]
        late: Bools = last[member] - base > max(LATE_SHARE * step, LEAST_NS)
        close: Bools = np.abs(start - last[member]) <= FIT * np.maximum(start - base, 0)
        cases += int(late.sum())
        if (late & close).sum() < MOST * late.sum():
            return False
    return cases >= FEWEST
