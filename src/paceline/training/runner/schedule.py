"""Learning-rate schedule and loss scaling."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.training.runner.config import LossScale, LrSchedule


def learning_rate(schedule: LrSchedule, step: int, total: int) -> float:
    """Learning rate of the 0-based `step`: linear warm-up, then `type` down to lr_end.

    >>> learning_rate(LrSchedule(type="linear", learning_rate=1.0, warmup_steps=2), 0, 10)
    0.5
    >>> learning_rate(LrSchedule(type="polynomial", learning_rate=1.0, lr_end=0.2, power=2.0), 5, 10)
    0.4
    """
    total = schedule.total_steps if schedule.total_steps > 0 else total
    warmup = schedule.warmup_steps if schedule.warmup_ratio is None else int(schedule.warmup_ratio * total)
    peak, start = schedule.learning_rate, schedule.warmup_lr_init
    if step < warmup:
        return start + (peak - start) * (step + 1) / warmup
    if schedule.type == "constant":
        return peak
    done = min(1.0, (step - warmup) / max(1, total - warmup))
    return schedule.lr_end + (peak - schedule.lr_end) * _left(schedule, done)


def _left(schedule: LrSchedule, done: float) -> float:
    """Share of the way from lr_end to the peak that is left when `done` of the steps after the warm-up are done."""
    if schedule.type == "linear":
        return 1 - done
    if schedule.type == "polynomial":
        return float((1 - done) ** schedule.power)
    if schedule.type == "cosine_with_restarts":
        return 0.0 if done >= 1 else (1 + math.cos(math.pi * (schedule.num_cycles * done % 1))) / 2
    return (1 + math.cos(2 * math.pi * schedule.num_cycles * done)) / 2


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
