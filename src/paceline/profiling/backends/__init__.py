"""Who records: the framework's own profiler where there is one, else our light recorder."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Protocol

from paceline.errors import UsageError
from paceline.profiling.output import Order, StepSpan
from paceline.profiling.scheduling import ProfilerAction

BACKENDS = ("mindspore", "torch", "light")
"""Modules of this package, in the order in which `auto` looks for their framework among the loaded ones."""


class Backend(Protocol):
    """Makes one recording after the other; what it cannot do raises, and the Profiler tells the user."""

    name: str

    def begin(self, order: Order, action: ProfilerAction, step: int) -> None:
        """Get ready (WARM_UP) or record from now on; `step` is the number of the step that begins."""

    def advance(self, action: ProfilerAction, step: int) -> None:
        """The next step of the same recording begins."""

    def finish(self, spans: list[StepSpan], metadata: dict[str, object]) -> Path:
        """Stop and write; the directory of the recording."""

    def analyse(self, recording: Path) -> None:
        """Analyse what was only recorded; nothing to do where that has happened."""

    def abandon(self) -> None:
        """Stop what only warmed up: there is nothing to write."""


def backend_named(name: str) -> Backend:
    """The backend of that name; `auto` is that of the framework this process has loaded."""
    if name == "auto":
        name = next((each for each in BACKENDS if each in sys.modules), "light")
    if name not in BACKENDS:
        raise UsageError(f"no profiling backend is called {name!r}", hint=f"one of: auto, {', '.join(BACKENDS)}")
    made: Backend = import_module(f"{__name__}.{name}_backend").BACKEND()
    return made
