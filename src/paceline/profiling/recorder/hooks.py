"""Which frameworks' collectives are recorded: those already imported when the recorder starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.profiling.recorder.recorder import Recorder


def install(recorder: Recorder) -> None:
    pass


def remove(recorder: Recorder) -> None:
    pass
