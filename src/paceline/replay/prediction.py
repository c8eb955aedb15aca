"""How well the graph predicts: what was recorded of one step, put on a graph learnt from the other steps.

For each step a, of what a replay is made of,

    recorded of a   transfers, computing before and beside each event (as kernels show it)
    of the others   everything else: gaps that no kernel covers, lags, when members leave a collective

so that the own residuals of a step never help to predict it. Where no kernels were recorded, what lies between collectives
cannot be divided: then it is the others' work at that place, times how much self time the rank had in a against the others.
The others are all other steps; of more than ALL_OTHERS steps, those of the other parity.

    error(a) = |predicted time of a - measured| / measured
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.peers import nan_median
from paceline.metrics.timeline.rank_timeline import Timeline
from paceline.replay.replay import Costs, Replay, Residuals

Floats = NDArray[np.float64]

FEWEST_STEPS = 3
ALL_OTHERS = 12


@dataclass(frozen=True)
class Prediction:
    """Errors of the predicted step times, as shares of the measured ones."""

    errors: Floats

    @property
    def typical(self) -> float:
        return float(np.median(self.errors))

    @property
    def worst(self) -> float:
        return float(np.max(self.errors))


def predict_steps(replay: Replay) -> Prediction | None:
    """Predict each step from the others; None where there are too few to learn from."""
    line = replay.timeline
    if len(line.steps) < FEWEST_STEPS or not len(line.work):
        return None
    costs, residuals = _exchanged(replay)
    predicted = replay.run(costs, residuals).step_times
    measured = replay.measured.step_times
    return Prediction(np.abs(predicted - measured) / np.maximum(measured, 1.0))


def _exchanged(replay: Replay) -> tuple[Costs, Residuals]:
    line, costs, others = replay.timeline, replay.costs, _Others(replay.timeline)
    computed = line.computed if len(line.computed) else np.full(len(line.work), -1)
    ratio = _self_time_ratio(line)[line.events.rank, line.step]
    gaps = np.where(computed >= 0, costs.work - computed, costs.work)
    learnt = others.median(gaps)
    work = np.where(computed >= 0, computed + np.maximum(learnt, 0), learnt * ratio)
    overlap = np.where(computed >= 0, costs.overlap, others.median(costs.overlap) * ratio)
    lag = others.median(line.lag.astype(np.float64))
    tail = np.zeros(len(work))
    return Costs(work, costs.transfer, overlap), Residuals(tail, lag)


def _self_time_ratio(line: Timeline) -> Floats:
    """Self time of each rank in each step over its median in the others; 1 where it is unknown."""
    self_time = line.self_time()
    columns = range(self_time.shape[1])
    typical = np.stack([nan_median(np.delete(self_time, column, axis=1)) for column in columns], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = self_time / typical
    known: Floats = np.where(np.isfinite(ratio) & (ratio > 0), ratio, 1.0)
    return known


class _Others:
    """The same place of the program on the same rank in other steps."""

    def __init__(self, line: Timeline) -> None:
        place = line.events.rank * (int(line.place.max(initial=0)) + 1) + line.place
        self.row = np.unique(place, return_inverse=True)[1]
        self.column = line.step
        self.shape = (int(self.row.max(initial=-1)) + 1, len(line.steps))

    def median(self, values: Floats) -> Floats:
        """For each event the median there; its own value where it happened in this step only."""
        table = np.full(self.shape, np.nan)
        table[self.row, self.column] = values
        typical = np.stack([nan_median(table[:, self._others(step)]) for step in range(self.shape[1])], axis=1)
        found = typical[self.row, self.column]
        known: Floats = np.where(np.isnan(found), values, found)
        return known

    def _others(self, step: int) -> NDArray[np.bool_]:
        steps = np.arange(self.shape[1])
        chosen: NDArray[np.bool_] = steps % 2 != step % 2 if len(steps) > ALL_OTHERS else steps != step
        return chosen
