"""Record the steps of an unchanged script with the light recorder: `paceline launch --record`."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path

from paceline.profiling.callback_adapter import TrainingCallback

RECORD_VARIABLE = "PACELINE_RECORD"
"""Directory of the recordings; set for processes that are to record themselves."""


def record_on_import(directory: str) -> None:
    """When torch or MindSpore is imported, so that its collectives are seen."""
    from paceline.profiling.autoprofile import FRAMEWORKS, when_imported

    when_imported(FRAMEWORKS, lambda framework: _begin(framework, directory))


def _begin(framework: str, directory: str) -> None:
    from paceline.profiling.autoprofile import count_steps

    count_steps(framework, AutoRecordRun(Path(directory)))


class AutoRecordRun(TrainingCallback):
    """One process; the recorder starts with the first step that ends, when ranks and groups are known."""

    def __init__(self, directory: Path) -> None:
        from paceline.recorder import Recorder

        self.in_model_train = False
        self._pid = os.getpid()
        self._recorder: Recorder | None = Recorder(directory)
        atexit.register(self.stop)

    def step(self) -> None:
        self.end_step(0)

    def end_step(self, number: int) -> None:
        if self._recorder is None or os.getpid() != self._pid:
            return
        try:
            if self._recorder.running:
                self._recorder.step()
            else:
                self._recorder.start()
        except Exception as error:  # a recorder must never end the training
            self._give_up(error)

    def stop(self) -> None:
        if self._recorder is None or os.getpid() != self._pid:
            return
        try:
            self._recorder.close()
        except Exception as error:  # as above
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._recorder = None
        print(f"[paceline] nothing more is recorded ({type(error).__name__}: {error})", file=sys.stderr)
