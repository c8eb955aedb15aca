"""The what-if metrics of the OSDI'25 straggler study, for op-level traces of pipeline × data parallel training.

The study ("Understanding Stragglers in Large Model Training Using What-if Analysis", Lin et al.) names operations; this
is its recipe, with our own replay. An operation is (name, number in its step, stage); what is known of it is an array
over replicas × steps, so the graph is built once and every replay evaluates all replicas and steps together:

    start(o) = max over operations d that o follows of end(d)
    end(o)   = start(o) + duration(o)                                         computing
    end(o)   = max over members m of o's collective of start(m) + transfer(o)  communication

o follows the operation before it in its stream (computing, each direction of each kind of message, the end of the
step), and: computing follows the message it needs, a message follows the computing that makes it. With

    transfer = end - max over members of start as recorded; for a message the shorter of both sides, because frameworks
               that send and receive in one call stretch the longer side

    T        = mean over steps of the replay with what was recorded: launch delays between operations are gone
    T ideal  = the same, every computing operation at its mean and every transfer at its median, per name, over
               replicas, stages and steps
    S        = T / T ideal                                                     slowdown by stragglers
    M        = (T - T without) / (T - T ideal)                                 share explained by what was made ideal

M_S makes the last stage ideal, M_W the worst 3 % of the workers; it exceeds 1 when the rest is faster than the mean. A
worker's score is min(S with only its replica as recorded, S with only its stage as recorded), as in the study.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.errors import PacelineError
from paceline.run.run import Run

Floats = NDArray[np.float64]

WORST_WORKERS = 0.03
_PASSES = {"forward": 1, "backward": -1}
"""Towards which stage each pass sends."""
_CLOSING = ("layernorm-grads-all-reduce", "embedding-grads-all-reduce", "grads-reduce-scatter", "grads-all-reduce",
                "optimizer-clip-main-grad", "optimizer")  # fmt: skip
"""What follows the last backward, in this order."""
_OVER_REPLICAS = {"grads-reduce-scatter", "grads-all-reduce", "params-all-gather", "optimizer-clip-main-grad"}
_OVER_STAGES = {"embedding-grads-all-reduce", "optimizer-clip-main-grad"}


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


Costs = dict[Operation, Floats]


class StragglerStudy:
    """The metrics of one run; times in seconds, arrays replicas × steps."""

    def __init__(self, operations: dict[Operation, Recorded]) -> None:
        self.operations = operations
        self.stages = 1 + max(operation.stage for operation in operations)
        self.shape: tuple[int, int] = next(iter(operations.values())).start.shape
        self._follows = _follows(operations)
        self._together = _order({operation: self._members(operation) for operation in operations}, self._follows)

    @cached_property
    def step_times(self) -> Floats:
        """Without launch delays, per step."""
        return self.replay(self.costs)

    @property
    def time(self) -> float:
        """T."""
        return float(self.step_times.mean())

    @cached_property
    def ideal_time(self) -> float:
        """T ideal."""
        return float(self.replay(self.ideal).mean())

    @property
    def slowdown(self) -> float:
        """S."""
        return self.time / self.ideal_time

    @cached_property
    def recorded_time(self) -> float:
        """Mean step as it was recorded, launch delays included."""
        ends = np.max([operation.end for operation in self.operations.values()], axis=(0, 1))
        starts = np.min([operation.start for operation in self.operations.values()], axis=(0, 1))
        return float((ends - starts).mean()) / 1e9

    @property
    def last_stage_share(self) -> float:
        """M_S."""
        last = np.zeros((self.stages, self.shape[0]), dtype=np.bool_)
        last[-1] = True
        return self.explained(last)

    @property
    def worst_workers_share(self) -> float:
        """M_W."""
        count = math.ceil(WORST_WORKERS * self.stages * self.shape[0])
        worst = np.zeros((self.stages, self.shape[0]), dtype=np.bool_)
        worst.flat[np.argsort(-self.worker_scores, axis=None, kind="stable")[:count]] = True
        return self.explained(worst)

    @cached_property
    def worker_scores(self) -> Floats:
        """Stages × replicas: how much of the slowdown each worker alone could cause."""
        stages, replicas = np.eye(self.stages, dtype=np.bool_), np.eye(self.shape[0], dtype=np.bool_)
        stage = [self._slowdown_by(np.outer(only, replicas.any(axis=0))) for only in stages]
        replica = [self._slowdown_by(np.outer(stages.any(axis=0), only)) for only in replicas]
        scores: Floats = np.minimum(np.array(stage)[:, None], np.array(replica)[None, :])
        return scores

    def explained(self, workers: NDArray[np.bool_]) -> float:
        """M of these workers, stages × replicas."""
        without = float(self.replay(self._mixed(self.costs, self.ideal, workers)).mean())
        return (self.time - without) / (self.time - self.ideal_time)

    @cached_property
    def costs(self) -> Costs:
        """Durations of computing, transfers of communication, as recorded."""
        transfers = {operation: self._transfer(operation) for operation in self.operations}
        return {
            operation: np.minimum.reduce([transfers[member] for member in self._members(operation)])
            if _is_message(operation)
            else transfers[operation]
            for operation in self.operations
        }

    @cached_property
    def ideal(self) -> Costs:
        alike: dict[str, list[Floats]] = {}
        for operation, cost in self.costs.items():
            alike.setdefault(operation.name, []).append(cost)
        communicates = {operation.name for operation, times in self.operations.items() if times.communicates}
        typical = {
            name: float(np.median(costs) if name in communicates else np.mean(costs)) for name, costs in alike.items()
        }
        return {operation: np.full(self.shape, typical[operation.name]) for operation in self.operations}

    def replay(self, costs: Costs) -> Floats:
        """Time of each step with these costs, s."""
        start: dict[Operation, Floats] = {}
        end: dict[Operation, Floats] = {}
        for members in self._together:
            for member in members:
                start[member] = np.zeros(self.shape)
                for before in self._follows[member]:
                    np.maximum(start[member], end[before], out=start[member])
            last = self._last(members, start)
            for member in members:
                end[member] = last + costs[member]
        step_times: Floats = np.max(list(end.values()), axis=(0, 1)) / 1e9
        return step_times

    def _slowdown_by(self, workers: NDArray[np.bool_]) -> float:
        """S if only these workers were as recorded."""
        return float(self.replay(self._mixed(self.ideal, self.costs, workers)).mean()) / self.ideal_time

    def _mixed(self, costs: Costs, other: Costs, workers: NDArray[np.bool_]) -> Costs:
        """The costs, with those of these workers (stages × replicas) taken from the other ones."""
        return {
            operation: np.where(workers[operation.stage][:, None], other[operation], cost)
            for operation, cost in costs.items()
        }

    def _transfer(self, operation: Operation) -> Floats:
        times = self.operations[operation]
        if not times.communicates:
            return times.end - times.start
        starts = {member: self.operations[member].start for member in self._members(operation)}
        transfer: Floats = np.maximum(0, times.end - self._last(tuple(starts), starts))
        return transfer

    def _last(self, members: tuple[Operation, ...], start: dict[Operation, Floats]) -> Floats:
        """When the last member began."""
        last: Floats = np.maximum.reduce([start[member] for member in members])
        if members[0].name in _OVER_REPLICAS:
            last = np.broadcast_to(last.max(axis=0), self.shape)
        return last

    def _members(self, operation: Operation) -> tuple[Operation, ...]:
        """The operations of one replica that form a collective, or a message, with this one."""
        name, number, stage = operation
        if name in _OVER_STAGES:
            everyone = (Operation(name, number, stage) for stage in range(self.stages))
            return tuple(member for member in everyone if member in self.operations)
        if not _is_message(operation):
            return (operation,)
        direction, _, kind = name.partition("-")
        toward = _PASSES[direction] if kind == "send" else -_PASSES[direction]
        other = Operation(f"{direction}-{'recv' if kind == 'send' else 'send'}", number, stage + toward)
        if other not in self.operations:
            raise PacelineError(
                f"{name} {number} of stage {stage} has no other side; interleaved pipelines are not modelled"
            )
        return tuple(sorted((operation, other)))


def straggler_study(run: Run) -> StragglerStudy:
    """The study of a run whose operations have the study's names (format osdi-straggler)."""
    run.load(["ranks", "steps", "kernels", "collectives"])
    columns = run.sql(_OPERATIONS).fetchall()
    if not columns:
        raise PacelineError("no step holds all operations of all workers with the names of the straggler study")
    steps = {step: place for place, step in enumerate(sorted({row[4] for row in columns}))}
    shape = (1 + max(row[3] for row in columns), len(steps))
    operations: dict[Operation, Recorded] = {}
    for name, number, stage, replica, step, start, end, communicates in columns:
        key = Operation(name, number, stage)
        if key not in operations:
            operations[key] = Recorded(np.full(shape, np.nan), np.full(shape, np.nan), communicates)
        operations[key].start[replica, steps[step]] = start
        operations[key].end[replica, steps[step]] = end
    return StragglerStudy(operations)


_OPERATIONS = """
    WITH workers AS (
        SELECT rank, stage, dense_rank() OVER (PARTITION BY stage ORDER BY rank) - 1 AS replica
        FROM ranks WHERE stage IS NOT NULL
    ), everything AS (
        SELECT rank, step, name, start, duration, false AS communicates FROM kernels WHERE step IS NOT NULL
        UNION ALL
        SELECT rank, step, name, start, duration, true FROM collectives WHERE step IS NOT NULL
    ), begins AS (
        SELECT step, min(start) AS begin FROM everything GROUP BY step
    ), numbered AS (
        SELECT name, row_number() OVER (PARTITION BY rank, step, name ORDER BY start) - 1 AS number, stage, replica, step,
               start - begin AS start, start - begin + duration AS end, communicates
        FROM everything JOIN workers USING (rank) JOIN begins USING (step)
    ), complete AS (
        -- A step counts when every worker recorded everything that the workers of its stage ever do.
        SELECT step FROM numbered GROUP BY step
        HAVING count(*) = (SELECT count(*) FROM (SELECT DISTINCT name, number, stage, replica FROM numbered))
    )
    SELECT * FROM numbered SEMI JOIN complete USING (step) ORDER BY step, stage, replica, start
"""


def _is_message(operation: Operation) -> bool:
    return operation.name.endswith(("-send", "-recv"))


def _follows(operations: dict[Operation, Recorded]) -> dict[Operation, list[Operation]]:
    """What each operation must wait for on its own worker."""
    follows: dict[Operation, list[Operation]] = {operation: [] for operation in operations}
    for stage in sorted({operation.stage for operation in operations}):
        here = [operation for operation in operations if operation.stage == stage]
        opening = [operation for operation in here if operation.name == "params-all-gather"]
        computing = _in_order(operations, (o for o in here if o.name in ("forward-compute", "backward-compute")))
        closing = [operation for name in _CLOSING for operation in here if operation.name == name]
        _chain(follows, [*opening, *computing, *closing])
        for direction in _PASSES:
            for kind in ("send", "recv"):
                messages = sorted(operation for operation in here if operation.name == f"{direction}-{kind}")
                _chain(follows, [*opening, *messages])
        for compute in computing:
            direction = compute.name.partition("-")[0]
            needed, made = (compute._replace(name=f"{direction}-{kind}") for kind in ("recv", "send"))
            if needed in operations:
                follows[compute].append(needed)
            if made in operations:
                follows[made].append(compute)
    return follows


def _in_order(operations: dict[Operation, Recorded], chosen: Iterable[Operation]) -> list[Operation]:
    """By their usual place in a step."""
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
