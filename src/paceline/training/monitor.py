"""Monitor: base class for objects that are called at every training step; Monitored calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from paceline.training.monitor_calls import MonitorCalls
from paceline.training.training_state import TrainingState


class Monitor:
    """Override what you need. Methods run in the training loop: keep them fast and do slow work in a thread.

    What they raise is logged, and training goes on; raise StopTraining to end it on purpose.
    """

    def train_begin(self, state: TrainingState) -> None:
        """state.step is the step from which training starts."""

    def step_begin(self, state: TrainingState) -> None: ...

    def step_end(self, state: TrainingState) -> None: ...

    def epoch_end(self, state: TrainingState) -> None: ...

    def train_end(self, state: TrainingState) -> None:
        """Called if training finished."""

    def train_failed(self, state: TrainingState, error: BaseException) -> None:
        """Called instead of train_end if training raised an exception."""

    def close(self) -> None:
        """Always called last, also after an exception: finish pending work."""


class Monitored:
    """Calls the monitors from a torch loop (or any other loop).

    with Monitored(monitors, state) as loop:
        for epoch in …:
            for batch in …:
                loop.step_begin()
                loss = …
                loop.step_end(loss=loss.item)        # a number, or a function that returns it on demand
            loop.epoch_end()
    """

    def __init__(self, monitors: Sequence[Monitor], state: TrainingState) -> None:
        self.monitors, self.state = list(monitors), state
        self._calls = MonitorCalls(self.monitors)

    def __enter__(self) -> Monitored:
        self._calls.call("train_begin", self.state)
        return self

    def step_begin(self) -> None:
        self._calls.call("step_begin", self.state)

    def step_end(
        self, *, loss: float | Callable[[], float | None] | None = None, learning_rate: float | None = None
    ) -> None:
        """Counts the step."""
        self.state.step += 1
        if self.state.steps_per_epoch:
            self.state.epoch = self.state.epoch_of_step
        if callable(loss):
            self.state.loss_of = loss
        else:
            self.state.loss = loss
        if learning_rate is not None:
            self.state.learning_rate = learning_rate
        self._calls.call("step_end", self.state)

    def epoch_end(self) -> None:
        """Counts the epoch; needed only where `steps_per_epoch` is unknown, or a monitor acts at the end of epochs."""
        self._calls.call("epoch_end", self.state)
        is_last = (
            0 < self.state.total_steps <= self.state.step
        )  # what is saved at the very end belongs to the last epoch
        if not self.state.steps_per_epoch and not is_last:
            self.state.epoch += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._calls.call("train_end", self.state)
            else:
                self._calls.call("train_failed", self.state, error)
        finally:
            self._calls.close()


def close_all(monitors: Sequence[Monitor]) -> None:
    """Close all monitors, even if some fail."""
    MonitorCalls(monitors).close()
