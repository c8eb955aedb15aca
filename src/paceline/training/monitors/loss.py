"""MFLossMonitor: loss, time per step and throughput, in the log format of MindFormers.

{ Epoch:[  1/  3], step:[    2/  100], loss: 5.123, per_step_time: 480ms, lr: 1e-05, overflow cond: False, loss_scale: 65536.0
   12.0% |██████                                            | 8.33 samples/s/p  0:10:00 }
"""

from __future__ import annotations

import logging
import math
from datetime import timedelta
from time import perf_counter, time
from typing import NamedTuple

from paceline.core.errors import UsageError
from paceline.training.async_log_writer import AsyncLogWriter
from paceline.training.monitor import Monitor
from paceline.training.monitor_calls import StopTraining
from paceline.training.training_state import TrainingState

_log = logging.getLogger("paceline.training")

_WIDTH = 50


class MFLossMonitor(Monitor):
    """The loop only queues the numbers; a thread formats and writes the lines. `close` waits for the last one."""

    def __init__(
        self, per_print_times: int = 1, *, check_for_nan_in_loss_and_grad: bool = False, global_batch_size: int = 0
    ) -> None:
        if per_print_times < 1:
            raise UsageError(f"MFLossMonitor: per_print_times {per_print_times} must be at least 1")
        self._every, self._strict, self._batch = per_print_times, check_for_nan_in_loss_and_grad, global_batch_size
        self._last_step, self._last_time = 0, 0.0
        self._writer = AsyncLogWriter(format_lines)

    def train_begin(self, state: TrainingState) -> None:
        self._last_step, self._last_time = state.step, perf_counter()

    def step_begin(self, state: TrainingState) -> None:
        # Time between the last line and this step (an evaluation, a slow start) does not count as step time.
        if state.step == self._last_step:
            self._last_time = perf_counter()

    def step_end(self, state: TrainingState) -> None:
        if state.step // self._every <= self._last_step // self._every:
            return
        seconds = (perf_counter() - self._last_time) / (state.step - self._last_step)
        done = self._report(state, seconds)
        self._writer.add(time(), done)
        if done.loss is not None and not math.isfinite(done.loss):
            self._report_not_finite(state, done.loss)
        self._last_step, self._last_time = state.step, perf_counter()

    def close(self) -> None:
        self._writer.flush()

    def _report(self, state: TrainingState, seconds: float) -> StepReport:
        loss, rate = state.loss, state.rate()
        batch = self._batch / state.world_size if self._batch else state.batch_size
        return StepReport(
            state.epoch,
            state.step,
            state.step_in_epoch,
            state.steps_per_epoch,
            state.total_steps,
            None if loss is None else float(loss),
            seconds,
            batch,
            None if rate is None else float(rate),
            bool(state.overflow),
            state.loss_scale,
        )

    def _report_not_finite(self, state: TrainingState, loss: float) -> None:
        self._writer.flush()
        if self._strict:
            raise StopTraining(
                f"step {state.step}: the loss is {loss}", hint="lower the learning rate or the loss scale"
            )
        _log.warning("step %d: the loss is %s", state.step, loss)


class StepReport(NamedTuple):
    """Numbers of one log line; names as in TrainingState."""

    epoch: int
    step: int
    step_in_epoch: int
    steps_per_epoch: int
    total_steps: int
    loss: float | None
    seconds: float
    batch: float
    """Samples per rank and step."""
    rate: float | None
    overflow: bool
    loss_scale: float | None


def format_lines(done: StepReport) -> tuple[str, str]:
    per_epoch = done.steps_per_epoch or done.total_steps or done.step
    total = done.total_steps or done.step
    epochs = -(-total // per_epoch)
    first = (
        f"{{ Epoch:[{done.epoch:3d}/{epochs:3d}], step:[{done.step_in_epoch:5d}/{per_epoch:5d}], "
        f"loss: {'-' if done.loss is None else f'{done.loss:5.3f}'}, per_step_time: {int(done.seconds * 1000)}ms"
        + (f", lr: {done.rate:g}" if done.rate is not None else "")
        + f", overflow cond: {done.overflow}, loss_scale: {done.loss_scale}"
    )
    percent = 100.0 * done.step / total
    throughput = done.batch / done.seconds if done.seconds > 0 else 0.0
    bar = f"|{'█' * int(_WIDTH * percent / 100):<{_WIDTH}}|"
    speed = f"{throughput:.2f}" if throughput >= 1 else f"{throughput:.5f}"
    left = timedelta(seconds=int((total - done.step) * done.seconds))
    return first, f"  {percent:4.1f}% {bar} {speed} samples/s/p  {left} }}"
