"""MFLossMonitor: loss, time per step and throughput, in the log line MindFormers' users and tools know.

{ Epoch:[  1/  3], step:[    2/  100], loss: 5.123, per_step_time: 480ms, lr: 1e-05, overflow cond: False, loss_scale: 65536.0
   12.0% |██████                                            | 8.33 samples/s/p  0:10:00 }
"""

from __future__ import annotations

import math
from datetime import timedelta
from time import perf_counter

from paceline.errors import PacelineError, UsageError
from paceline.training.monitor import Monitor
from paceline.training.state import TrainingState
from paceline.training.telling import log

_WIDTH = 50


class MFLossMonitor(Monitor):
    def __init__(
        self, per_print_times: int = 1, *, check_for_nan_in_loss_and_grad: bool = False, global_batch_size: int = 0
    ) -> None:
        if per_print_times < 1:
            raise UsageError(f"MFLossMonitor: per_print_times {per_print_times} must be at least 1")
        self._every, self._strict, self._batch = per_print_times, check_for_nan_in_loss_and_grad, global_batch_size
        self._last_step, self._last_time = 0, 0.0

    def train_begin(self, state: TrainingState) -> None:
        self._last_step, self._last_time = state.step, perf_counter()

    def step_begin(self, state: TrainingState) -> None:
        # What lies between the last line and this step (an evaluation, a long start) is no step's time.
        if state.step == self._last_step:
            self._last_time = perf_counter()

    def step_end(self, state: TrainingState) -> None:
        if state.step // self._every <= self._last_step // self._every:
            return
        seconds = (perf_counter() - self._last_time) / (state.step - self._last_step)
        loss = state.loss
        for line in describe(state, loss, seconds, self._batch):
            log.info("%s", line)
        if loss is not None and not math.isfinite(loss):
            self._say_not_finite(state, loss)
        self._last_step, self._last_time = state.step, perf_counter()

    def _say_not_finite(self, state: TrainingState, loss: float) -> None:
        if self._strict:
            raise PacelineError(
                f"step {state.step}: the loss is {loss}", hint="lower the learning rate or the loss scale"
            )
        log.warning("step %d: the loss is %s", state.step, loss)


def describe(state: TrainingState, loss: float | None, seconds: float, global_batch: int = 0) -> tuple[str, str]:
    per_epoch = state.steps_per_epoch or state.total_steps or state.step
    total = state.total_steps or state.step
    epochs = -(-total // per_epoch)
    rate = state.rate()
    first = (
        f"{{ Epoch:[{state.epoch:3d}/{epochs:3d}], step:[{state.step_in_epoch:5d}/{per_epoch:5d}], "
        f"loss: {'nan' if loss is None else f'{loss:5.3f}'}, per_step_time: {int(seconds * 1000)}ms"
        + (f", lr: {rate:g}" if rate is not None else "")
        + f", overflow cond: {bool(state.overflow)}, loss_scale: {state.loss_scale}"
    )
    percent = 100.0 * state.step / total
    batch = global_batch / state.world_size if global_batch else state.batch_size
    throughput = batch / seconds if seconds > 0 else 0.0
    bar = f"|{'█' * int(_WIDTH * percent / 100):<{_WIDTH}}|"
    speed = f"{throughput:.2f}" if throughput >= 1 else f"{throughput:.5f}"
    left = timedelta(seconds=int((total - state.step) * seconds))
    return first, f"  {percent:4.1f}% {bar} {speed} samples/s/p  {left} }}"
