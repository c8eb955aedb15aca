"""A custom model: the reference model, which records that it was used."""

from __future__ import annotations

from paceline.training.reference.gpt2_torch import TorchLearner
from paceline.training.reference.learner import StepOutcome, Tokens


class OwnLearner(TorchLearner):
    steps = 0

    def train_step(self, batches: Tokens, learning_rate: float, loss_scale: float) -> StepOutcome:
        OwnLearner.steps += 1
        return super().train_step(batches, learning_rate, loss_scale)
