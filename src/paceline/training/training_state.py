"""TrainingState: what a training loop passes to its monitors at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping

Weights = Mapping[str, Any]
"""Name → NumPy array, or a torch or MindSpore tensor (bfloat16 has no NumPy type); read immediately, not stored."""


def no_weights() -> Weights:
    return {}


@dataclass
class TrainingState:
    rank: int = 0
    world_size: int = 1
    step: int = 0
    """Global, 1-based: the step that just ended (in step_begin: the previous one). Greater than 0 at train_begin
    if training was resumed."""
    epoch: int = 1
    """1-based."""
    steps_per_epoch: int = 0
    """0: unknown or endless; file names then use epoch 1 and the global step."""
    total_steps: int = 0
    batch_size: int = 1
    """Samples per rank and step."""
    data_parallel: int = 0
    """Copies of the model, each with its own data; 0: one per rank."""
    learning_rate: float | None = None
    loss_scale: float | None = None
    overflow: bool | None = None
    weights: Callable[[], Weights] = no_weights
    """Returns the current parameters of the model by name."""
    optimizer_state: Callable[[], Weights] = no_weights
    trainable: Callable[[str], bool] = lambda name: True
    extra: dict[str, int | float] = field(default_factory=dict)
    """More scalars for the checkpoint (a seed, the dataset's position)."""
    scalars: dict[str, float] = field(default_factory=dict)
    """More curves for the summary of this step."""
    loss_of: Callable[[], float | None] = lambda: None
    """Called at most once per step, and only if a monitor needs it: reading the loss synchronises with the device."""
    learning_rate_of: Callable[[], float | None] = lambda: None
    """The same for learning_rate, if the loop does not have it as a number."""
    sum_over_ranks: Callable[[Sequence[float]], Sequence[float]] | None = None
    """Element-wise sum; every rank calls it at the end of the same step. None: not available."""
    error: Exception | None = None
    """What loss_of raised: an error of the training (a lost device), not of the monitor that asked."""
    _loss_step: int = -1
    _loss: float | None = None

    @property
    def loss(self) -> float | None:
        if self._loss_step != self.step:
            try:
                self._loss, self._loss_step = self.loss_of(), self.step
            except Exception as error:
                self.error = error
                raise
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
    def epoch_of_step(self) -> int:
        """1-based; with `step_in_epoch` it names every step once, also in a loop that does not count epochs."""
        return (self.step - 1) // self.steps_per_epoch + 1 if self.steps_per_epoch and self.step else 1

    @property
    def global_batch_size(self) -> int:
        return self.batch_size * (self.data_parallel or self.world_size)
