"""Profiling a script that never calls us: begins when its framework is imported, counts its steps, writes at its end.

A step of torch ends with the step of the first optimizer that makes one; a step of MindSpore with that of Model.train, or with
the call of the first optimizer in loops of one's own (PyNative).
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from paceline.profiling.callback import TrainingCallback, with_callback_type
from paceline.profiling.output import Order
from paceline.profiling.recorder.identity import identify
from paceline.profiling.recording import Recordings
from paceline.profiling.scheduling import ActionOfStep, always, window

if TYPE_CHECKING:
    from paceline.profiling.environment import EnvironmentOptions


def profile_when_imported(asked: EnvironmentOptions) -> None:
    """Now, if a framework is there; else when one comes."""
    wanted = ("mindspore", "torch") if asked.backend == "auto" else (asked.backend,)
    loaded = next((name for name in wanted if name in sys.modules), None)
    if loaded:
        _begin(loaded, asked)
    else:
        sys.meta_path.insert(0, _AfterImport(wanted, lambda name: _begin(name, asked)))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls back once, after the first of some modules has been imported."""

    def __init__(self, names: Sequence[str], then: Callable[[str], None]) -> None:
        self._names, self._then = names, then

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        sys.meta_path.remove(self)
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._then(name)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one loader
        return spec


def _begin(framework: str, asked: EnvironmentOptions) -> None:
    if framework == "mindspore" and asked.framework_can:
        return  # MindSpore reads the variable itself
    identity = identify()
    if asked.ranks is not None and identity.rank not in asked.ranks:
        return
    run = UnaskedRun(framework, asked)
    if framework == "torch":
        _count_torch_steps(run)
    else:
        _count_mindspore_steps(run)
    atexit.register(run.stop)
    run.begin_step(1)


class UnaskedRun(TrainingCallback):
    """The recording of one process; steps are counted from 1."""

    def __init__(self, framework: str, asked: EnvironmentOptions) -> None:
        self._asked = asked
        self._recordings = Recordings(framework)
        self._action: ActionOfStep = always
        if not asked.framework_can:
            self._action = window(asked.start_step or 1, asked.stop_step or sys.maxsize)
        self._number = 0
        self._pid = os.getpid()
        self.in_model_train = False

    def step(self) -> None:
        """A step ended."""
        self.begin_step(self._number + 1)

    def begin_step(self, number: int) -> None:
        if number != self._number and os.getpid() == self._pid:
            self._number = number
            self._recordings.enter(number, self._action(number), self._order, self._finish)

    def end_step(self, number: int) -> None:
        self.begin_step(number + 1)

    def stop(self) -> None:
        if os.getpid() != self._pid:
            return
        self._finish()
        start = self._asked.start_step
        if start is not None and self._number < start:
            seen = "no step was seen" if self._number <= 1 else f"training ended at step {self._number}"
            print(f"[paceline] nothing was recorded: {seen}, start_step is {start}", file=sys.stderr)

    def _finish(self) -> None:
        self._recordings.close({}, lambda: None)

    def _order(self) -> Order:
        options = self._asked.options
        return Order(Path(options.output_path).absolute(), options, identify())


def _count_torch_steps(run: UnaskedRun) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    counted: list[object] = []

    def stepped(optimizer: object, *_: object) -> None:
        if not counted:
            counted.append(optimizer)
        if counted[0] is optimizer:
            run.step()

    register_optimizer_step_post_hook(stepped)


def _count_mindspore_steps(run: UnaskedRun) -> None:
    from mindspore import nn
    from mindspore.train import Model

    Model.train = _with_callback(Model.train, run)
    call = nn.Optimizer.__call__
    counted: list[object] = []

    @functools.wraps(call)
    def called(optimizer: object, *arguments: Any, **named: Any) -> Any:
        result = call(optimizer, *arguments, **named)
        if not counted:
            counted.append(optimizer)
        if counted[0] is optimizer and not run.in_model_train:
            run.step()
        return result

    nn.Optimizer.__call__ = called


def _with_callback(train: Callable[..., Any], run: UnaskedRun) -> Callable[..., Any]:
    """Model.train with one more callback, which counts."""

    @functools.wraps(train)
    def trained(*arguments: Any, **named: Any) -> Any:
        bound = inspect.signature(train).bind(*arguments, **named)
        given = bound.arguments.get("callbacks")
        listed = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
        bound.arguments["callbacks"] = [*listed, with_callback_type(_Counting)(run)]
        run.in_model_train = True
        try:
            return train(*bound.args, **bound.kwargs)
        finally:
            run.in_model_train = False

    return trained


class _Counting(TrainingCallback):
    def __init__(self, run: UnaskedRun) -> None:
        self._run = run

    def begin_step(self, number: int) -> None:
        self._run.begin_step(number)

    def end_step(self, number: int) -> None:
        self._run.end_step(number)
