"""Paceline's monitors as a callback of Hugging Face's Trainer.

from paceline.integrations.transformers import PacelineCallback
Trainer(..., callbacks=[PacelineCallback([MFLossMonitor(), ObsMonitor(target_dir="obs://bucket/run")])])
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from transformers import TrainerCallback

from paceline.training.checkpointing.torch_state import torch_state
from paceline.training.monitor import Monitor
from paceline.training.monitor_calls import MonitorCalls
from paceline.training.training_state import TrainingState


class PacelineCallback(TrainerCallback):  # type: ignore[misc]
    """The loss is the one that Trainer logs every `logging_steps` steps: their mean. Steps in between have none."""

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        self._calls = MonitorCalls(monitors)
        self._state = TrainingState()
        self._is_waiting = False
        """For the loss of the step that ended: Trainer logs it after its end."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        steps = max(1, int(state.max_steps))
        epochs = max(1.0, float(args.num_train_epochs))
        self._state = replace(
            torch_state(given["model"], given.get("optimizer")),
            step=int(state.global_step),
            total_steps=steps,
            steps_per_epoch=0 if args.max_steps > 0 else round(steps / epochs),
            batch_size=int(args.per_device_train_batch_size) * int(args.gradient_accumulation_steps),
        )
        atexit.register(self._training_failed)
        self._calls.call("train_begin", self._state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._end_step(None)
        optimizer = given.get("optimizer")
        if optimizer is not None:  # before the scheduler changes it for the next step
            self._state.learning_rate = float(optimizer.param_groups[0]["lr"])
        self._calls.call("step_begin", self._state)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._state.step = int(state.global_step)
        if self._state.steps_per_epoch:
            self._state.epoch = self._state.epoch_of_step
        self._is_waiting = True
        if not control.should_log:
            self._end_step(None)

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        loss = (given.get("logs") or {}).get("loss")
        self._end_step(None if loss is None else float(loss))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._end_step(None)
        self._calls.call("epoch_end", self._state)
        if not self._state.steps_per_epoch and self._state.step < self._state.total_steps:
            self._state.epoch += 1

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        atexit.unregister(self._training_failed)
        self._end_step(None)
        self._calls.call("train_end", self._state)
        self._calls.close()

    def _end_step(self, loss: float | None) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._state.loss = loss
            self._calls.call("step_end", self._state)

    def _training_failed(self) -> None:
        """Trainer tells no callback that training raised: at the exit of Python it has not ended."""
        error = getattr(sys, "last_value", None) or RuntimeError("training did not end")
        self._calls.call("train_failed", self._state, error)
        self._calls.close()
