"""`Profiler`: records chosen steps, as an object, a context manager, or a callback.

Steps of a schedule are counted from 0, as in both frameworks; start_step and stop_step from 1, both included, in all
three forms. A failed recording is a warning, never an exception: training goes on.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any

from paceline.profiling import mindspore_steps
from paceline.profiling.callback_adapter import TrainingCallback, with_callback_base
from paceline.profiling.metadata import Metadata
from paceline.profiling.option_conflicts import resolve_conflicts
from paceline.profiling.option_parsing import parse_options, suggestion
from paceline.profiling.output_files import RecordingSpec
from paceline.profiling.recording import RecordingSequence
from paceline.profiling.scheduling import ProfilerAction, Schedule, action_of_step, always, step_window
from paceline.profiling.trace_handler import TraceHandler
from paceline.profiling.warning import warn
from paceline.recorder.identity import identify


class Profiler(TrainingCallback):
    """Records steps with the framework's own profiler (or the light recorder); does nothing on ranks not in `ranks`.

        with Profiler(schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
                      on_trace_ready=tensorboard_trace_handler("./data"), ranks=[0, 8]) as profiler:
            for batch in data:
                train(batch)
                profiler.step()

        model.train(epochs, data, callbacks=[Profiler(start_step=2, stop_step=5, output_path="./data")])

    Accepts all parameters of MindSpore's `profile` and of the older `mindspore.Profiler` (docs/profiling.md), and
    `ranks`, `backend` (auto, mindspore, torch, light), `start_step`, `stop_step`.
    """

    def __new__(cls, *_: object, **__: object) -> Profiler:
        return object.__new__(with_callback_base(cls))

    def __init__(
        self,
        *,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[..., object] | None = None,
        start_step: int | None = None,
        stop_step: int | None = None,
        ranks: Collection[int] | None = None,
        backend: str = "auto",
        **options: Any,
    ) -> None:
        chosen, unknown = parse_options(options)
        for name in unknown:
            raise TypeError(f"unknown parameter '{name}' of Profiler{suggestion(name)}")
        self._options = resolve_conflicts(chosen, scheduled=schedule is not None)
        self._ready = _handler(on_trace_ready)
        self._identity = identify()
        self._is_recording_rank = _includes_rank(self._identity.rank, self._identity.world_size, ranks)
        self._metadata = Metadata()
        self._recordings = RecordingSequence(backend)
        self._window = _window(start_step, stop_step) if start_step is not None or stop_step is not None else None
        self._scheduled = schedule is not None
        self._action_of: Callable[[int], ProfilerAction] = always
        if self._window:
            self._action_of = step_window(*self._window)
        elif schedule is not None:
            self._action_of = action_of_step(schedule)
        self._plan = self._action_of.to_dict() if isinstance(self._action_of, Schedule) else None
        self.step_num = 1 if self._window else 0
        self._running = self._follows = False
        if not (self._scheduled or self._window):
            mindspore_steps.follow(self)
        atexit.register(_stop_at_exit, weakref.ref(self))
        if self._options.start_profile and not self._window:
            self.start()

    # -- as an object -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with the current step; a second call only warns."""
        if self._running:
            warn("The profiler has already started. Do not turn on again in the open state.")
            return
        self._running = True
        self._enter(self.step_num)

    def step(self) -> None:
        """One step of training ends here, the next begins."""
        if not self._running and not self._window:
            warn("Profiler is stopped, step takes no effect!")
            return
        if not self._scheduled and not self._window:
            warn("With no schedule in the Profiler, step takes no effect!")
            return
        self._enter(self.step_num + 1)

    def stop(self) -> None:
        """End; what was recorded is kept, with a warning if it is incomplete."""
        if not self._running and not self._window:
            warn("The profiler has not started. Do not turn off again in the closed state.")
            return
        self._running = False
        if self._is_recording_rank and (self._scheduled or self._window):
            self._recordings.warn_if_cut_short(self.step_num)
        self._recordings.close(self._metadata.values(), self._trace_ready)

    def analyse(self, *_: object, **__: object) -> None:
        """Stop if still recording, and analyse recordings that no trace handler has analysed."""
        if self._scheduled:
            warn("The profiler has schedule. Please use 'on_trace_ready' to analyse data.")
            return
        if self._running:
            self.stop()
        self._recordings.analyse()

    def add_metadata(self, key: str, value: str) -> None:
        """Add text to profiler_metadata.json of every recording."""
        self._metadata.add(key, value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a JSON value to profiler_metadata.json of every recording."""
        self._metadata.add_json(key, value)

    @property
    def recordings(self) -> list[Path]:
        """Directories written so far."""
        return list(self._recordings.written)

    @property
    def current_action(self) -> ProfilerAction:
        return self._recordings.action

    # -- as a context manager -----------------------------------------------------------------------------------------

    def __enter__(self) -> Profiler:
        if not self._running and not self._window:
            self.start()
        elif self._window:
            self._enter(self.step_num)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running or self._window:
            self.stop()

    # -- as a callback ------------------------------------------------------------------------------------------------

    def begin_step(self, number: int) -> None:
        if self._window is None:
            return
        start, stop = self._window
        if self._recordings.current is None and self.step_num < start < number:
            kept = f"steps {number} to {stop} are recorded" if number <= stop else "nothing is recorded"
            warn(
                f"training went from step {self.step_num} to {number} at once and skipped start_step {start}: {kept}. "
                "With data sinking use sink_size=1."
            )
        self._enter(number)

    def end_step(self, number: int) -> None:
        if self._window:
            self._enter(number + 1)
        elif self._scheduled:
            self.step()

    def end_training(self) -> None:
        if self._running or self._window:
            self.stop()

    def training_step(self, number: int) -> None:
        """Step `number` of MindSpore's own loop begins, of a profiler that is started and stopped by hand."""
        self.step_num = number
        if not self._follows:
            self._follows = True
            self._recordings.forget_step()  # what ran before the first step
        if self._running:
            self._enter(number)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _enter(self, number: int) -> None:
        """Step `number` begins; called twice for a step by callbacks, which report its beginning and its end."""
        self.step_num = number
        if self._is_recording_rank:
            self._recordings.enter(number, self._action_of(number), self._spec, self._finished)

    def _finished(self) -> None:
        self._recordings.close(self._metadata.values(), self._trace_ready)

    def _spec(self) -> RecordingSpec:
        handler = self._ready if isinstance(self._ready, TraceHandler) else TraceHandler(analyse_flag=False)
        return RecordingSpec(
            directory=Path(handler.dir_name or self._options.output_path).absolute(),
            options=self._options,
            identity=self._identity,
            worker=handler.worker_name,
            analyse=handler.analyse_flag,
            asynchronous=handler.async_mode,
            schedule=self._plan,
        )

    def _trace_ready(self) -> None:
        if self._ready is not None:
            self._ready(self)


profile = Profiler
"""The name in MindSpore and torch."""


def _handler(given: Callable[..., object] | None) -> Callable[..., object] | None:
    if given is not None and not callable(given):
        warn("For Profiler, on_trace_ready value is Invalid, reset to None.")
        return None
    return given


def _includes_rank(rank: int, world: int, ranks: Collection[int] | None) -> bool:
    if ranks is None:
        return True
    if not any(0 <= each < world for each in ranks):
        warn(f"ranks={sorted(ranks)}: this job has ranks 0 to {world - 1}; nothing will be recorded.")
    return rank in ranks


def _window(start_step: int | None, stop_step: int | None) -> tuple[int, int]:
    """First and last step, counted from 1; invalid values record nothing, with a warning."""
    start = 1 if start_step is None else start_step
    stop = start if stop_step is None else stop_step
    if not (type(start) is type(stop) is int and 1 <= start <= stop):
        warn(
            f"start_step {start!r} and stop_step {stop!r} must be integers with 1 <= start_step <= stop_step; "
            "nothing will be recorded."
        )
        return 0, -1
    return start, stop


def _stop_at_exit(reference: weakref.ref[Profiler]) -> None:
    profiler = reference()
    if profiler is None or profiler._identity.pid != os.getpid():
        return
    if profiler._running or profiler._recordings.current is not None:
        profiler.stop()
