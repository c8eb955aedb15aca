"""Profiler backends: the framework's own profiler if one is imported, else the light recorder."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Protocol

from paceline.core.errors import UsageError
from paceline.profiling.output_files import RecordingSpec, StepSpan
from paceline.profiling.scheduling import ProfilerAction

BACKENDS = ("mindspore", "torch", "light")
"""Modules of this package, in the order in which `auto` looks for an imported framework."""


class ProfilerBackend(Protocol):
    """Makes recordings, one after the other; errors are raised, and the Profiler turns them into warnings."""

    name: str

    def begin(self, spec: RecordingSpec, action: ProfilerAction, step: int) -> None:
        """Prepare (WARM_UP) or start recording; `step` is the number of the step that begins."""

    def advance(self, action: ProfilerAction, step: int) -> None:
        """The next step of the same recording begins."""

    def finish(self, spans: list[StepSpan], metadata: dict[str, object]) -> Path:
        """Stop and write; returns the directory of the recording."""

    def analyse(self, recording: Path) -> None:
        """Analyse a recording that has not been analysed."""

    def discard(self) -> None:
        """Stop without writing, after warm-up steps only."""


def create_backend(name: str) -> ProfilerBackend:
    """The backend of that name; `auto`: that of the imported framework."""
    if name == "auto":
        name = next((each for each in BACKENDS if each in sys.modules), "light")
    if name not in BACKENDS:
        raise UsageError(f"unknown profiling backend {name!r}", hint=f"one of: auto, {', '.join(BACKENDS)}")
    made: ProfilerBackend = import_module(f"{__name__}.{name}_backend").BACKEND()
    return made
