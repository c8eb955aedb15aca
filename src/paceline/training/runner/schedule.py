"""Learning-rate schedule and loss scaling."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.training.runner.config import LossScale, LrSchedule


def learning_rate(schedule: LrSchedule, step: int, total: int) -> float:
    """Learning rate of the 0-based `step`: linear warm-up from 0, then `type` down to lr_end.

    >>> learning_rate(LrSchedule(type="linear", learning_rate=1.0, warmup_steps=2), 0, 10)
    0.5
    """
    if step < schedule.warmup_steps:
        return schedule.learning_rate * (step + 1) / schedule.warmup_steps
    if schedule.type == "constant":
        return schedule.learning_rate
    done = (step - schedule.warmup_steps) / max(1, total - schedule.warmup_steps)
    left = 1 - done if schedule.type == "linear" else (1 + math.cos(math.pi * done)) / 2
    return schedule.lr_end + (schedule.learning_rate - schedule.lr_end) * left


@dataclass
class LossScaler:
    """Reduced when gradients overflow, increased after a window without; powers of two do not change fp32 results."""

    config: LossScale
    value: float
    good_steps: int = 0

    @classmethod
    def begin(cls, config: LossScale) -> LossScaler:
        return cls(config, config.loss_scale_value)

    def update(self, overflow: bool) -> None:
        if overflow:
            self.value, self.good_steps = max(self.value / self.config.scale_factor, 1.0), 0
            return
        self.good_steps += 1
        if self.good_steps >= self.config.scale_window:
            self.value, self.good_steps = self.value * self.config.scale_factor, 0
