"""No monitor ends a training, except on purpose; what failed is said once, and counted at the end."""

from __future__ import annotations

import logging

import pytest

from paceline.core.errors import UsageError
from paceline.training import Monitor, Monitored, StopTraining, TrainingState


class Broken(Monitor):
    """Raises in every hook, and counts the calls."""

    def __init__(self, error: Exception) -> None:
        self.error, self.calls = error, 0

    def _raise(self, *_: object) -> None:
        self.calls += 1
        raise self.error

    train_begin = step_begin = step_end = epoch_end = train_end = train_failed = close = _raise


class Counting(Monitor):
    def __init__(self) -> None:
        self.steps = 0
        self.closed = False

    def step_end(self, state: TrainingState) -> None:
        self.steps += 1

    def close(self) -> None:
        self.closed = True


def _train(*monitors: Monitor, steps: int = 3) -> None:
    with Monitored(monitors, TrainingState()) as loop:
        for _ in range(steps):
            loop.step_begin()
            loop.step_end(loss=1.0)
        loop.epoch_end()


def test_training_goes_on_when_a_monitor_raises_in_every_hook(caplog: pytest.LogCaptureFixture) -> None:
    broken, other = Broken(RuntimeError("disk on fire")), Counting()
    with caplog.at_level(logging.WARNING):
        _train(broken, other)
    assert (other.steps, other.closed) == (3, True)
    assert broken.calls == 1 + 2 * 3 + 1 + 1 + 1  # begin, steps, epoch, end, close
    assert caplog.text.count("Broken failed in step_end: RuntimeError: disk on fire") == 1
    assert "Broken failed 10 times during training, first in train_begin: RuntimeError: disk on fire" in caplog.text


class Epochs(Monitor):
    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def step_end(self, state: TrainingState) -> None:
        self.seen.append((state.epoch, state.step_in_epoch))


@pytest.mark.parametrize("counted", [True, False], ids=["loop counts epochs", "loop does not"])
def test_epoch_and_step_name_every_step_once(counted: bool) -> None:
    """They are a checkpoint's name: a loop without epoch_end replaced the files of its first epoch in the second."""
    monitor, state = Epochs(), TrainingState(step=3, steps_per_epoch=2, total_steps=8)
    with Monitored([monitor], state) as loop:
        while state.step < 7:
            loop.step_begin()
            loop.step_end(loss=1.0)
            if counted and state.step % 2 == 0:
                loop.epoch_end()
    assert monitor.seen == [(2, 2), (3, 1), (3, 2), (4, 1)]


def test_epochs_of_unknown_length_are_counted_by_the_loop() -> None:
    state = TrainingState(total_steps=3)
    with Monitored([], state) as loop:
        for epoch in (1, 2, 3):
            assert state.epoch == epoch
            loop.step_end(loss=1.0)
            loop.epoch_end()
    assert state.epoch == 3


def test_the_error_of_the_training_is_raised_not_the_monitors() -> None:
    broken = Broken(RuntimeError("mine"))
    with pytest.raises(ValueError, match="the training's"), Monitored([broken], TrainingState()):
        raise ValueError("the training's")


def test_a_monitor_stops_training_on_purpose() -> None:
    other = Counting()
    with pytest.raises(StopTraining, match="enough"):
        _train(Broken(StopTraining("enough")), other)


def test_a_wrong_setting_is_raised_before_the_first_step() -> None:
    with pytest.raises(UsageError, match="no such option"):
        _train(Broken(UsageError("no such option")))


def test_a_loss_that_cannot_be_read_is_an_error_of_the_training() -> None:
    class Reads(Monitor):
        def step_end(self, state: TrainingState) -> None:
            assert state.loss is not None

    def lost() -> float:
        raise RuntimeError("device lost")

    with pytest.raises(RuntimeError, match="device lost"), Monitored([Reads()], TrainingState()) as loop:
        loop.step_end(loss=lost)
