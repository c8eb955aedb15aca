"""Backend that uses the light recorder, for loops without a framework or for cheap recordings."""

from __future__ import annotations

from pathlib import Path

from paceline.profiling.output_files import RecordingSpec, StepSpan, add_metadata, recording_directory
from paceline.profiling.scheduling import ProfilerAction
from paceline.recorder import Recorder

MAX_STEPS = 10_000
"""Kept in detail; a longer recording keeps its last steps."""


class LightBackend:
    name = "light"

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._spec: RecordingSpec | None = None
        self._step = 0

    def begin(self, spec: RecordingSpec, action: ProfilerAction, step: int) -> None:
        self._spec, self._step = spec, step
        if action is not ProfilerAction.WARM_UP:
            self._start()

    def advance(self, action: ProfilerAction, step: int) -> None:
        self._step = step
        if self._recorder is None:
            if action is not ProfilerAction.WARM_UP:
                self._start()
        else:
            self._recorder.step(step - 1)

    def finish(self, spans: list[StepSpan], metadata: dict[str, object]) -> Path:
        assert self._recorder is not None
        if spans and spans[-1].step == self._step:
            self._recorder.step(self._step)
        self._recorder.close()
        directory = self._recorder.directory
        assert directory is not None
        add_metadata(directory, metadata)
        self._recorder = None
        return directory

    def analyse(self, recording: Path) -> None:
        """Nothing to do: the recorder exports its tables on close."""

    def discard(self) -> None:
        """Nothing to do: the recorder is not started for warm-up steps."""

    def _start(self) -> None:
        assert self._spec is not None
        identity = self._spec.identity
        self._recorder = Recorder(
            recording_directory(self._spec, "ms"),
            rank=identity.rank,
            world_size=identity.world_size,
            job=identity.job or None,
            steps=MAX_STEPS,
            first_step=self._step,
            warm_up=0,  # exactly the requested steps
        ).start()


BACKEND = LightBackend
