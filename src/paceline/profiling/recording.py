"""State machine from profiler actions to recordings: opens, continues and closes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from paceline.core.errors import PacelineError
from paceline.profiling.backends import ProfilerBackend, create_backend
from paceline.profiling.output_files import RecordingSpec, StepSpan
from paceline.profiling.scheduling import ProfilerAction
from paceline.profiling.warning import warn

NONE, WARM_UP, RECORD, SAVE = ProfilerAction
_BACKEND_ERRORS = (OSError, RuntimeError, ValueError, AttributeError, ImportError, PacelineError)
"""Raised by a framework's profiler or a full disk; training must go on."""


class RecordingSequence:
    """The recordings of one Profiler, one after the other; `current` is the one in progress."""

    def __init__(self, backend: str) -> None:
        self._backend_name = backend
        self.current: ProfilerBackend | None = None
        self.action = NONE
        self.written: list[Path] = []
        self._spans: list[StepSpan] = []
        self._step: int | None = None
        self._since = 0
        self._ever_active = False

    def enter(
        self, step: int, action: ProfilerAction, spec: Callable[[], RecordingSpec], save: Callable[[], None]
    ) -> None:
        """Step `step` begins; `action` is what to do with it."""
        if step == self._step and action is self.action:
            return
        self._end_step()
        before = self.action
        if before is SAVE:
            save()
        elif before in (RECORD, WARM_UP) and (action is NONE or (before is RECORD and action is WARM_UP)):
            warn(f"Incorrect schedule: {_action_name(before)} followed by {_action_name(action)}")
            save()
        if action is NONE:
            self.action = NONE
        elif self.current is None:
            self._open(spec, action, step)
        else:
            self._guarded(lambda backend: backend.advance(action, step))
            self.action = action
        self._step, self._since = step, time.time_ns()
        self._ever_active |= action in (RECORD, SAVE)

    def forget_step(self) -> None:
        """What is being recorded belongs to no step."""
        self._step = None

    def warn_if_cut_short(self, step: int) -> None:
        """Warn that training ended before the schedule did, with MindSpore's documented texts."""
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
                f"Incorrect schedule: Stop profiler at step {step}, before the first step to be recorded; nothing was recorded."
            )

    def close(self, metadata: dict[str, object], ready: Callable[[], None]) -> None:
        """Write the recording in progress, if any, and call `ready` afterwards.

        A step that has not ended is left out, unless it is the only one (from start() to stop()).
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
                backend.discard()
                return
            self.written.append(backend.finish(spans, metadata))
        except _BACKEND_ERRORS as error:
            warn(f"The recording could not be written: {error}")
            return
        ready()

    def analyse(self) -> None:
        """Analyse what was recorded without analysis."""
        try:
            for recording in self.written:
                create_backend(self._backend_name).analyse(recording)
        except _BACKEND_ERRORS as error:
            warn(f"The recording could not be analysed: {error}")

    def _open(self, spec: Callable[[], RecordingSpec], action: ProfilerAction, step: int) -> None:
        try:
            backend = create_backend(self._backend_name)
            backend.begin(spec(), action, step)
        except _BACKEND_ERRORS as error:
            warn(f"Nothing is recorded: {error}")
            return
        self.current, self.action, self._spans = backend, action, []

    def _guarded(self, work: Callable[[ProfilerBackend], None]) -> None:
        try:
            if self.current is not None:
                work(self.current)
        except _BACKEND_ERRORS as error:
            warn(f"The recording was aborted: {error}")
            self.current = None

    def _end_step(self) -> None:
        if self._step is not None and self.current is not None and self.action in (RECORD, SAVE):
            self._spans.append(StepSpan(self._step, self._since, time.time_ns()))
        self._step = None


def _action_name(action: ProfilerAction) -> str:
    return action.name.replace("_UP", "UP")
