"""Learner: the protocol between the runner and a model. Implement it to train your own model with the runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class StepOutcome:
    loss: float
    """Mean over all ranks."""
    overflow: bool
    """Gradients were not finite; the weights were not changed."""


@dataclass(frozen=True)
class Score:
    """Sums over predicted tokens, so that the scores of ranks can be added."""

    loss: float
    correct: int
    tokens: int


@dataclass(frozen=True)
class Optimizer:
    """Parameters of AdamW, and the norm to which gradients are clipped (0: no clipping)."""

    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    clip_norm: float = 1.0


@runtime_checkable
class ModelParallel(Protocol):
    """A learner of which several ranks hold one copy of the model together."""

    data_rank: int
    data_size: int
    """Copies of the model, each with its own data."""


def data_ranks(learner: Learner) -> tuple[int, int]:
    """Which share of the data a rank gets: number and count."""
    if isinstance(learner, ModelParallel):
        return learner.data_rank, learner.data_size
    return learner.rank, learner.world_size


class Learner(Protocol):
    rank: int
    world_size: int
    model: Any
    """The model object of the framework."""

    def train_step(self, batches: Tokens, learning_rate: float, loss_scale: float) -> StepOutcome:
        """One update from [accumulated, batch, length + 1] tokens; gradients are averaged over ranks."""
        ...

    def score(self, batch: Tokens) -> Score: ...

    def next_logits(self, tokens: Tokens) -> Array:
        """For each row, the logits of the token after it."""
        ...

    def weights(self) -> Mapping[str, Any]: ...

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Every parameter of the model, by name."""
        ...

    def trainable(self, name: str) -> bool: ...

    def optimizer_state(self) -> Mapping[str, Any]:
        """Everything else that determines the next step: moments, random state."""
        ...

    def load_optimizer_state(self, state: Mapping[str, Array]) -> None: ...

    def sum_over_ranks(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]: ...

    def close(self) -> None: ...
