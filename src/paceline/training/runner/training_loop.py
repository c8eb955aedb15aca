"""The training loop; the order of batches depends only on the seed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paceline.core.errors import UsageError
from paceline.training.monitor import Monitor, Monitored
from paceline.training.reference.learner import Learner, Tokens, data_ranks
from paceline.training.reference.text_data import TextBlocks
from paceline.training.runner.config import RunConfig
from paceline.training.runner.schedule import LossScaler, learning_rate
from paceline.training.training_state import TrainingState

if TYPE_CHECKING:
    from paceline.profiling import Recorder


@dataclass
class TrainingProgress:
    """Progress of training: everything in a checkpoint that is not a tensor."""

    step: int
    """Number of steps done."""
    scale: LossScaler


@dataclass(frozen=True)
class Batches:
    """Which blocks each rank gets at each step."""

    blocks: TextBlocks
    config: RunConfig
    rank: int
    """Among those with data of their own: ranks that share a copy of the model get the same blocks."""
    world_size: int

    @property
    def per_step(self) -> int:
        """Blocks per rank and step."""
        runner = self.config.runner_config
        return runner.batch_size * runner.gradient_accumulation_steps

    @property
    def steps_per_epoch(self) -> int:
        steps = self.blocks.count // (self.per_step * self.world_size)
        if not steps:
            raise UsageError(
                f"{self.blocks.count} blocks of text are not enough for one step of {self.world_size} ranks × "
                f"{self.per_step}",
                hint="use more text, or a smaller --batch_size",
            )
        return steps

    def at(self, step: int) -> Tokens:
        """Tokens of the 0-based global `step`: [accumulated, batch, length + 1]."""
        epoch, within = divmod(step, self.steps_per_epoch)
        shuffle = self.config.train_dataset.data_loader.shuffle
        order = self.blocks.order(self.config.seed, epoch, shuffle=shuffle)
        first = (within * self.world_size + self.rank) * self.per_step
        tokens = self.blocks.take(order[first : first + self.per_step])
        return tokens.reshape(self.config.runner_config.gradient_accumulation_steps, -1, tokens.shape[-1])


def train(
    config: RunConfig,
    learner: Learner,
    batches: Batches,
    progress: TrainingProgress,
    monitors: Sequence[Monitor],
    recorder: Recorder | None = None,
) -> TrainingState:
    total = config.runner_config.epochs * batches.steps_per_epoch
    state = _state(config, learner, batches, progress, total)
    todo = (batches.at(step) for step in range(progress.step, total))
    with Monitored(monitors, state) as loop:
        for step, tokens in enumerate(recorder.data(todo) if recorder else todo, progress.step):
            loop.step_begin()
            rate = learning_rate(config.lr_schedule, step, total)
            with recorder.phase("forward_backward") if recorder else nullcontext():
                outcome = learner.train_step(tokens, rate, progress.scale.value)
            progress.scale.update(outcome.overflow)
            state.overflow, state.loss_scale = outcome.overflow, progress.scale.value
            state.extra["loss_scale_good_steps"] = progress.scale.good_steps
            loop.step_end(loss=outcome.loss, learning_rate=rate)
            if recorder:
                recorder.step()
            if (step + 1) % batches.steps_per_epoch == 0:
                loop.epoch_end()
    return state


def _state(
    config: RunConfig, learner: Learner, batches: Batches, progress: TrainingProgress, total: int
) -> TrainingState:
    return TrainingState(
        rank=learner.rank,
        world_size=learner.world_size,
        step=progress.step,
        epoch=progress.step // batches.steps_per_epoch + 1,
        steps_per_epoch=batches.steps_per_epoch,
        total_steps=total,
        batch_size=batches.per_step,
        data_parallel=data_ranks(learner)[1],
        loss_scale=progress.scale.value,
        weights=learner.weights,
        optimizer_state=learner.optimizer_state,
        trainable=learner.trainable,
        sum_over_ranks=lambda values: [float(each) for each in learner.sum_over_ranks(np.array(values))],
        extra={"loss_scale_good_steps": progress.scale.good_steps, "seed": config.seed},
    )
