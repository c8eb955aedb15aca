"""Paceline's monitors as a callback of Lightning's Trainer.

from paceline.integrations.lightning import PacelineCallback
Trainer(..., callbacks=[PacelineCallback([MFLossMonitor(), CheckpointMonitor("m", save_checkpoint_steps=100)])])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lightning.pytorch.callbacks import Callback

from paceline.training.checkpointing.torch_state import torch_state
from paceline.training.monitor import Monitor
from paceline.training.monitor_calls import MonitorCalls
from paceline.training.training_state import TrainingState

_ENDLESS = float("inf")


class PacelineCallback(Callback):  # type: ignore[misc]
    """A step is an optimizer step: batches whose gradients are accumulated count once."""

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        self._calls = MonitorCalls(monitors)
        self._state = TrainingState()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        optimizer = trainer.optimizers[0] if trainer.optimizers else None
        batches, steps = trainer.num_training_batches, trainer.estimated_stepping_batches
        accumulated = int(trainer.accumulate_grad_batches)
        self._state = replace(
            torch_state(pl_module, optimizer),
            rank=int(trainer.global_rank),
            world_size=int(trainer.world_size),
            step=int(trainer.global_step),
            epoch=int(trainer.current_epoch) + 1,
            total_steps=0 if steps == _ENDLESS else max(0, int(steps)),
            steps_per_epoch=0 if batches == _ENDLESS else -(-int(batches) // accumulated),
            batch_size=int(getattr(trainer.train_dataloader, "batch_size", None) or 1) * accumulated,
        )
        self._calls.call("train_begin", self._state)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % int(trainer.accumulate_grad_batches) == 0:
            if trainer.optimizers:  # before the scheduler changes it for the next step
                self._state.learning_rate = float(trainer.optimizers[0].param_groups[0]["lr"])
            self._calls.call("step_begin", self._state)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if int(trainer.global_step) <= self._state.step:
            return  # gradients are still accumulated
        self._state.step = int(trainer.global_step)
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self._state.loss_of = lambda: None if loss is None else float(loss)
        self._calls.call("step_end", self._state)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._state.epoch = int(trainer.current_epoch) + 1

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._calls.call("epoch_end", self._state)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._calls.call("train_end", self._state)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._calls.call("train_failed", self._state, exception)
        self._calls.close()  # Lightning does not tear down after it

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self._calls.close()
