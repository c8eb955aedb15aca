"""The what-if metrics of the OSDI'25 straggler study, for op-level traces of pipeline × data parallel training.

The study ("Understanding Stragglers in Large Model Training Using What-if Analysis", Lin et al.) names operations; this
is its recipe, with our own replay. Operations and what they follow: metrics/timeline/operation_graph.py. Every replay evaluates
all replicas and steps together:

    start(o) = max over operations d that o follows of end(d)
    end(o)   = start(o) + duration(o)                                         computing
    end(o)   = max over members m of o's collective of start(m) + transfer(o)  communication

with

    transfer = end - max over members of start, as recorded

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
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.timeline.operation_graph import Operation, OperationGraph, cached_operation_graph, over_replicas
from paceline.run.run import Run

Floats = NDArray[np.float64]

WORST_WORKERS = 0.03
WRONG_NS = 10_000_000
"""A transfer that ended longer than this before it began is wrong, and taken for 0."""

Costs = dict[Operation, Floats]


class StragglerStudy(OperationGraph):
    """The metrics of one run; times in seconds, arrays replicas × steps."""

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
        count = math.ceil(round(WORST_WORKERS * self.stages * self.shape[0], 9))
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
        """M of these workers, stages × replicas; nan where nothing is lost."""
        without = float(self.replay(self._mixed(self.costs, self.ideal, workers)).mean())
        lost = self.time - self.ideal_time
        return (self.time - without) / lost if lost else math.nan

    @cached_property
    def costs(self) -> Costs:
        """Durations of computing, transfers of communication, as recorded."""
        return {operation: self._transfer(operation) for operation in self.operations}

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
        for members in self.together:
            for member in members:
                start[member] = np.zeros(self.shape)
                for before in self.follows[member]:
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
        starts = {member: self.operations[member].start for member in self.members(operation)}
        transfer = times.end - self._last(tuple(starts), starts)
        right: Floats = np.where(transfer <= -WRONG_NS, 0.0, transfer)
        return right

    def _last(self, members: tuple[Operation, ...], start: dict[Operation, Floats]) -> Floats:
        """When the last member began."""
        last: Floats = np.maximum.reduce([start[member] for member in members])
        if over_replicas(members[0]):
            last = np.broadcast_to(last.max(axis=0), self.shape)
        return last


def straggler_study(run: Run) -> StragglerStudy:
    """The study of a run whose operations have the study's names (format osdi-straggler)."""
    graph = cached_operation_graph(run)
    return StragglerStudy(graph.operations, graph.steps)
