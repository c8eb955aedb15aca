"""From actions to recordings: opens, continues and closes them as the schedule's state machine says."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from paceline.errors import PacelineError
from paceline.profiling.backends import Backend, backend_named
from paceline.profiling.output import Order, StepSpan
from paceline.profiling.scheduling import ProfilerAction
from paceline.profiling.warning import warn

NONE, WARM_UP, RECORD, SAVE = ProfilerAction
_TROUBLE = (OSError, RuntimeError, ValueError, AttributeError, ImportError, PacelineError)
"""What a framework's profiler or a full disk may raise; training must not end because of it."""


class Recordings:
    """One after the other, of one Profiler; `current` is the one under way."""

    def __init__(self, backend: str) -> None:
        self._asked = backend
        self.current: Backend | None = None
        self.action = NONE
        self.written: list[Path] = []
        self._spans: list[StepSpan] = []
        self._step: int | None = None
        self._since = 0
        self._ever_active = False

    def enter(self, step: int, action: ProfilerAction, order: Callable[[], Order], save: Callable[[], None]) -> None:
        """Step `step` begins and is to be `action`."""
        if step == self._step and action is self.action:
            return
        self._end_step()
        before = self.action
        if before is SAVE:
            save()
        elif before in (RECORD, WARM_UP) and (action is NONE or (before is RECORD and action is WARM_UP)):
            warn(f"Incorrect schedule: {_said(before)} followed by {_said(action)}")
            save()
        if action is NONE:
            self.action = NONE
        elif self.current is None:
            self._open(order, action, step)
        else:
            self._guarded(lambda backend: backend.advance(action, step))
            self.action = action
        self._step, self._since = step, time.time_ns()
        self._ever_active |= action in (RECORD, SAVE)

    def warn_if_cut_short(self, step: int) -> None:
        """Training ends before the schedule does: in the documented words."""
        if self.action is WARM_UP:
            warn(
                "Incorrect schedule: Stop profiler while current state is WARMUP which will result in empty parsed data."
            )
        elif self.action is RECORD:
            warn(
                "Incorrect schedule: Stop profiler while current state is RECORD which may result in incomplete parsed data."
            )
        elif self.action is SAVE:
            warn(
                "Stop profiler while current state is RECORD_AND_SAVE, perhaps the scheduling cycle has not yet completed."
            )
        elif not self._ever_active:
            warn(
                f"Incorrect schedule: Stop profiler at step {step}, before the first step to be recorded; nothing was."
            )

    def close(self, metadata: dict[str, object], ready: Callable[[], None]) -> None:
        """Write the recording under way, if there is one; `ready` is called once it lies there.

        A step that has begun and not ended is no step, unless it is all there is (from start() to stop()).
        """
        if self.current is None:
            return
        if not self._spans:
            self._end_step()
        backend, action = self.current, self.action
        self.current, self.action, self._step = None, NONE, None
        spans, self._spans = self._spans, []
        try:
            if action is WARM_UP:
                backend.abandon()
                return
            self.written.append(backend.finish(spans, metadata))
        except _TROUBLE as error:
            warn(f"The recording could not be written: {error}")
            return
        ready()

    def analyse(self) -> None:
        """What was recorded without being analysed, as `Profiler.analyse` is asked for."""
        try:
            for recording in self.written:
                backend_named(self._asked).analyse(recording)
        except _TROUBLE as error:
            warn(f"The recording could not be analysed: {error}")

    def _open(self, order: Callable[[], Order], action: ProfilerAction, step: int) -> None:
        try:
            backend = backend_named(self._asked)
            backend.begin(order(), action, step)
        except _TROUBLE as error:
            warn(f"Nothing is recorded: {error}")
            return
        self.current, self.action, self._spans = backend, action, []

    def _guarded(self, work: Callable[[Backend], None]) -> None:
        try:
            if self.current is not None:
                work(self.current)
        except _TROUBLE as error:
            warn(f"The recording was given up: {error}")
            self.current = None

    def _end_step(self) -> None:
        if self._step is not None and self.current is not None and self.action in (RECORD, SAVE):
            self._spans.append(StepSpan(self._step, self._since, time.time_ns()))
        self._step = None


def _said(action: ProfilerAction) -> str:
    return action.name.replace("_UP", "UP")
