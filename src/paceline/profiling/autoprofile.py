"""Profile an unchanged script: start when its framework is imported, count its steps, write at its end.

A torch step ends when the first optimizer that steps has stepped; a MindSpore step with the step of Model.train, or with
the call of the first optimizer in a custom loop (PyNative).
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
from typing import TYPE_CHECKING, Any, Protocol

from paceline.profiling.callback_adapter import TrainingCallback, with_callback_base
from paceline.profiling.output_files import RecordingSpec
from paceline.profiling.recording import RecordingSequence
from paceline.profiling.scheduling import ActionOfStep, always, step_window
from paceline.recorder.identity import identify

if TYPE_CHECKING:
    from paceline.profiling.environment_options import EnvironmentOptions


FRAMEWORKS = ("mindspore", "torch")


def profile_on_import(options: EnvironmentOptions) -> None:
    """Start now if a framework is imported, else when it is."""
    wanted = FRAMEWORKS if options.backend == "auto" else (options.backend,)
    when_imported(wanted, lambda name: _begin(name, options))


def when_imported(names: Sequence[str], then: Callable[[str], None]) -> None:
    """Call `then` with the first of the modules that is, or will be, imported."""
    loaded = next((name for name in names if name in sys.modules), None)
    if loaded:
        then(loaded)
    else:
        sys.meta_path.insert(0, _ImportHook(names, then))


class CountedRun(Protocol):
    """What is reported about the steps of a process."""

    in_model_train: bool

    def step(self) -> None: ...

    def begin_step(self, number: int) -> None: ...

    def end_step(self, number: int) -> None: ...


def count_steps(framework: str, run: CountedRun) -> None:
    if framework == "torch":
        _count_torch_steps(run)
    else:
        _count_mindspore_steps(run)


class _ImportHook(importlib.abc.MetaPathFinder):
    """Calls `then` once, after the first of the modules has been imported."""

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

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this loader only
        return spec


def _begin(framework: str, options: EnvironmentOptions) -> None:
    if framework == "mindspore" and options.mindspore_can_handle:
        return  # MindSpore profiles the script itself
    identity = identify()
    if options.ranks is not None and identity.rank not in options.ranks:
        return
    run = AutoProfileRun(framework, options)
    count_steps(framework, run)
    atexit.register(run.stop)
    run.begin_step(1)


class AutoProfileRun(TrainingCallback):
    """The recordings of one process; steps are counted from 1."""

    def __init__(self, framework: str, options: EnvironmentOptions) -> None:
        self._asked = options
        self._recordings = RecordingSequence(framework)
        self._action: ActionOfStep = always
        if not options.mindspore_can_handle:
            self._action = step_window(options.start_step or 1, options.stop_step or sys.maxsize)
        self._number = 0
        self._pid = os.getpid()
        self.in_model_train = False

    def step(self) -> None:
        """The current step has ended."""
        self.begin_step(self._number + 1)

    def begin_step(self, number: int) -> None:
        if number != self._number and os.getpid() == self._pid:
            self._number = number
            self._recordings.enter(number, self._action(number), self._spec, self._finish)

    def end_step(self, number: int) -> None:
        self.begin_step(number + 1)

    def stop(self) -> None:
        if os.getpid() != self._pid:
            return
        self._finish()
        start = self._asked.start_step
        if start is not None and self._number < start:
            reached = "no step was counted" if self._number <= 1 else f"training ended at step {self._number}"
            print(f"[paceline] nothing was recorded: {reached}, start_step is {start}", file=sys.stderr)

    def _finish(self) -> None:
        self._recordings.close({}, lambda: None)

    def _spec(self) -> RecordingSpec:
        options = self._asked.options
        return RecordingSpec(Path(options.output_path).absolute(), options, identify())


def _count_torch_steps(run: CountedRun) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    counted: list[object] = []

    def stepped(optimizer: object, *_: object) -> None:
        if not counted:
            counted.append(optimizer)
        if counted[0] is optimizer:
            run.step()

    register_optimizer_step_post_hook(stepped)


def _count_mindspore_steps(run: CountedRun) -> None:
    from mindspore.train import Model

    from mindspore import nn

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


def _with_callback(train: Callable[..., Any], run: CountedRun) -> Callable[..., Any]:
    """Model.train with one more callback, which counts the steps."""

    @functools.wraps(train)
    def trained(*arguments: Any, **named: Any) -> Any:
        bound = inspect.signature(train).bind(*arguments, **named)
        given = bound.arguments.get("callbacks")
        listed = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
        bound.arguments["callbacks"] = [*listed, with_callback_base(_StepCounter)(run)]
        run.in_model_train = True
        try:
            return train(*bound.args, **bound.kwargs)
        finally:
            run.in_model_train = False

    return trained


class _StepCounter(TrainingCallback):
    def __init__(self, run: CountedRun) -> None:
        self._run = run

    def begin_step(self, number: int) -> None:
        self._run.begin_step(number)

    def end_step(self, number: int) -> None:
        self._run.end_step(number)
