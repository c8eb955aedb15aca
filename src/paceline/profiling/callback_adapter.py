"""Callbacks for a framework's training loop: MindSpore accepts only subclasses of its own Callback class."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

T = TypeVar("T", bound="TrainingCallback")


class TrainingCallback:
    """Called at the beginning and end of each step; steps are numbered by the training, from 1."""

    def begin_step(self, number: int) -> None: ...

    def end_step(self, number: int) -> None: ...

    def end_training(self) -> None: ...

    # MindSpore's names for the same methods:

    def step_begin(self, run_context: Any) -> None:
        self.begin_step(_number(run_context))

    def step_end(self, run_context: Any) -> None:
        self.end_step(_number(run_context))

    def end(self, run_context: Any) -> None:
        self.end_training()


def with_callback_base(kind: type[T]) -> type[T]:
    """The class with MindSpore's Callback as an additional base, if MindSpore is imported."""
    return _with_callback(kind) if "mindspore" in sys.modules else kind


_create_profile: dict[type, Any] = {}


def _with_callback(kind: type[T]) -> type[T]:
    from mindspore.train import Callback

    if issubclass(kind, Callback):
        return kind
    if kind not in _create_profile:
        _create_profile[kind] = type(
            kind.__name__, (kind, Callback), {"__module__": kind.__module__, "__doc__": kind.__doc__}
        )
    made: type[T] = _create_profile[kind]
    return made


def _number(run_context: Any) -> int:
    return int(run_context.original_args().cur_step_num)
