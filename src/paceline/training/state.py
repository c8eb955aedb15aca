"""What a training loop tells its monitors at each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Weights = Mapping[str, Any]
"""Name → NumPy array, or a torch or MindSpore tensor (bfloat16 has no NumPy type); read at once, never kept."""


def nothing() -> Weights:
    return {}


@dataclass
class TrainingState:
    rank: int = 0
    world_size: int = 1
    step: int = 0
    """Global and 1-based: the step that just ended (in step_begin: the one before). Larger than 0 at train_begin
    when training was resumed."""
    epoch: int = 1
    """1-based."""
    steps_per_epoch: int = 0
    """0: unknown or endless; file names then say epoch 1 and the global step."""
    total_steps: int = 0
    batch_size: int = 1
    """Samples per rank and step."""
    learning_rate: float | None = None
    loss_scale: float | None = None
    overflow: bool | None = None
    weights: Callable[[], Weights] = nothing
    """The model's parameters by name, as they are now."""
    optimizer_state: Callable[[], Weights] = nothing
    trainable: Callable[[str], bool] = lambda name: True
    extra: dict[str, int | float] = field(default_factory=dict)
    """More scalars for the checkpoint (a seed, the dataset's position)."""
    scalars: dict[str, float] = field(default_factory=dict)
    """More curves for the summary of this step."""
    loss_of: Callable[[], float | None] = lambda: None
    """Asked at most once a step, and only if a monitor wants to know: reading a loss stops an accelerator."""
    learning_rate_of: Callable[[], float | None] = lambda: None
    """The same for learning_rate, where the loop does not know it as a number."""
    sum_over_ranks: Callable[[Sequence[float]], Sequence[float]] | None = None
    """Number by number; every rank calls it, at the end of the same step. None: ranks cannot be asked."""
    _loss_step: int = -1
    _loss: float | None = None

    @property
    def loss(self) -> float | None:
        if self._loss_step != self.step:
            self._loss, self._loss_step = self.loss_of(), self.step
        return self._loss

    @loss.setter
    def loss(self, value: float | None) -> None:
        self._loss, self._loss_step = value, self.step

    def rate(self) -> float | None:
        return self.learning_rate if self.learning_rate is not None else self.learning_rate_of()

    @property
    def step_in_epoch(self) -> int:
        """1-based, as in checkpoint names."""
        return (self.step - 1) % self.steps_per_epoch + 1 if self.steps_per_epoch and self.step else self.step

    @property
    def global_batch_size(self) -> int:
        return self.batch_size * self.world_size
