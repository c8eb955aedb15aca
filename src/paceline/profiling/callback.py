"""Standing in a framework's list of callbacks: MindSpore accepts only children of its own Callback class."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

T = TypeVar("T", bound="TrainingCallback")


class TrainingCallback:
    """What is said at the ends of a step, whoever says it; numbers are those of the training, from 1."""

    def begin_step(self, number: int) -> None: ...

    def end_step(self, number: int) -> None: ...

    def end_training(self) -> None: ...

    # MindSpore's names for these moments:

    def step_begin(self, run_context: Any) -> None:
        self.begin_step(_number(run_context))

    def step_end(self, run_context: Any) -> None:
        self.end_step(_number(run_context))

    def end(self, run_context: Any) -> None:
        self.end_training()


def with_callback_type(kind: type[T]) -> type[T]:
    """The same class as a child of MindSpore's Callback, where MindSpore is loaded."""
    return _with_callback(kind) if "mindspore" in sys.modules else kind


_made: dict[type, Any] = {}


def _with_callback(kind: type[T]) -> type[T]:
    from mindspore.train import Callback

    if issubclass(kind, Callback):
        return kind
    if kind not in _made:
        _made[kind] = type(kind.__name__, (kind, Callback), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    made: type[T] = _made[kind]
    return made


def _number(run_context: Any) -> int:
    return int(run_context.original_args().cur_step_num)
