"""Our own light recorder, for loops without a framework, or as the cheap choice in those with one."""

from __future__ import annotations

from pathlib import Path

from paceline.profiling.output import Order, StepSpan, add_metadata, recording_directory
from paceline.profiling.recorder import Recorder
from paceline.profiling.scheduling import ProfilerAction

MOST_STEPS = 10_000
"""Kept in detail; a recording that lasts longer keeps its last ones."""


class LightBackend:
    name = "light"

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._order: Order | None = None
        self._step = 0

    def begin(self, order: Order, action: ProfilerAction, step: int) -> None:
        self._order, self._step = order, step
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
        """Its tables were written when it closed."""

    def abandon(self) -> None:
        """Nothing was started for a warm-up."""

    def _start(self) -> None:
        assert self._order is not None
        identity = self._order.identity
        self._recorder = Recorder(
            recording_directory(self._order, "ms"),
            rank=identity.rank,
            world_size=identity.world_size,
            job=identity.job or None,
            steps=MOST_STEPS,
            first_step=self._step,
            warm_up=0,  # exactly the steps that were asked for
        ).start()


BACKEND = LightBackend
