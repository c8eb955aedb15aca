"""Paceline's monitors as a callback of Hugging Face's Trainer.

from paceline.integrations.transformers import PacelineCallback
Trainer(..., callbacks=[PacelineCallback([MFLossMonitor(), ObsMonitor(target_dir="obs://bucket/run")])])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from transformers import TrainerCallback

from paceline.training.checkpointing.torch_state import torch_state
from paceline.training.monitor import Monitor
from paceline.training.monitor_calls import MonitorCalls
from paceline.training.training_state import TrainingState


class PacelineCallback(TrainerCallback):  # type: ignore[misc]
    """The loss is the one that Trainer logs: every `logging_steps` steps."""

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        self._calls = MonitorCalls(monitors)
        self._state = TrainingState()

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        own = torch_state(given["model"], given.get("optimizer"))
        steps = max(1, int(state.max_steps))
        epochs = max(1.0, float(args.num_train_epochs))
        self._state = replace(
            own,
            step=int(state.global_step),
            total_steps=steps,
            steps_per_epoch=0 if args.max_steps > 0 else round(steps / epochs),
            batch_size=int(args.per_device_train_batch_size) * int(args.gradient_accumulation_steps),
        )
        self._calls.call("train_begin", self._state)

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._calls.call("step_begin", self._state)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._state.step = int(state.global_step)
        self._state.loss = _last(state.log_history, "loss")
        self._state.learning_rate = _last(state.log_history, "learning_rate")
        self._calls.call("step_end", self._state)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._calls.call("epoch_end", self._state)
        if self._state.step < self._state.total_steps:
            self._state.epoch += 1

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._calls.call("train_end", self._state)
        self._calls.close()


def _last(history: Sequence[dict[str, Any]], key: str) -> float | None:
    return next((float(entry[key]) for entry in reversed(history) if key in entry), None)
