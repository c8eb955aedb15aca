"""The profiling schedule of MindSpore and torch: wait, warm-up and active steps, repeated."""

from __future__ import annotations

from enum import Enum
from typing import Any, Callable

from paceline.profiling.warning import warn


class ProfilerAction(Enum):
    NONE = 0
    WARM_UP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    """The last step of a recording."""


ActionOfStep = Callable[[int], ProfilerAction]


class Schedule:
    """After `skip_first` steps: `wait` idle steps, `warmup` discarded ones, `active` recorded ones, `repeat` times.

    repeat=0 repeats until training ends. Steps are counted from 0, as in both frameworks.

    >>> cycle = Schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> "".join("-WRS"[cycle(step).value] for step in range(6))
    '-WRS--'
    """

    def __init__(
        self,
        *,
        wait: int = 0,
        active: int = 1,
        warmup: int | None = None,
        repeat: int = 0,
        skip_first: int = 0,
        warm_up: int | None = None,
    ) -> None:
        if warmup is not None and warm_up is not None and warmup != warm_up:
            warn(f"'warmup' ({warmup}) and 'warm_up' ({warm_up}) are the same parameter; {warmup} is used.")
        warmup = warmup if warmup is not None else warm_up
        self.wait = _validate("wait", wait, at_least=0)
        self.active = _validate("active", active, at_least=1)
        self.warmup = _validate("warmup", 0 if warmup is None else warmup, at_least=0)
        self.repeat = _validate("repeat", repeat, at_least=0)
        self.skip_first = _validate("skip_first", skip_first, at_least=0)
        if self.warmup == 0:
            warn("Profiler won't be using warmup, this can skew profiler results")

    def __call__(self, step: int) -> ProfilerAction:
        if step < 0:
            raise ValueError("Invalid parameter step, which must be not less than 0.")
        if step < self.skip_first:
            return ProfilerAction.NONE
        cycle, position = divmod(step - self.skip_first, self.wait + self.warmup + self.active)
        if (self.repeat and cycle >= self.repeat) or position < self.wait:
            return ProfilerAction.NONE
        if position < self.wait + self.warmup:
            return ProfilerAction.WARM_UP
        last = position == self.wait + self.warmup + self.active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    def __repr__(self) -> str:
        return f"Schedule({', '.join(f'{name}={value}' for name, value in self.to_dict().items())})"

    def to_dict(self) -> dict[str, int]:
        return {
            "wait": self.wait,
            "active": self.active,
            "warmup": self.warmup,
            "repeat": self.repeat,
            "skip_first": self.skip_first,
        }


schedule = Schedule


def action_of_step(function: object) -> ActionOfStep:
    """Convert a schedule of MindSpore or torch, or any function from step to action."""
    if isinstance(function, Schedule):
        return function
    parameters = getattr(function, "to_dict", None)
    if callable(parameters):
        return Schedule(**parameters())
    if not callable(function):
        warn(f"For Profiler, schedule value is Invalid, reset to {{'wait': 0, 'active': 1}}; got {function!r}.")
        return Schedule(wait=0, active=1)
    return _convert_actions(function)


def _convert_actions(function: Callable[[int], Any]) -> ActionOfStep:
    """torch's WARMUP is WARM_UP here; the other names are the same."""

    def action(step: int) -> ProfilerAction:
        name = str(function(step).name).replace("WARMUP", "WARM_UP")
        return ProfilerAction[name]

    return action


def step_window(start_step: int, stop_step: int) -> ActionOfStep:
    """A schedule that records exactly the steps from start_step to stop_step, both included."""

    def action(step: int) -> ProfilerAction:
        if not start_step <= step <= stop_step:
            return ProfilerAction.NONE
        return ProfilerAction.RECORD_AND_SAVE if step == stop_step else ProfilerAction.RECORD

    return action


def always(_: int) -> ProfilerAction:
    """Records everything from start() to stop()."""
    return ProfilerAction.RECORD


def _validate(name: str, value: object, *, at_least: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= at_least:
        return value
    problem = f"should be at least {at_least}" if type(value) is int else "should be of type int"
    got = value if type(value) is int else type(value).__name__
    warn(f"Parameter '{name}' {problem}, but got {got}. reset to int {at_least}.")
    return at_least
