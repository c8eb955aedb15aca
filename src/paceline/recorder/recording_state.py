"""What phases, hooks, watchdog and exit hooks use of a running recorder: protocols, so that they need not import it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from paceline.recorder.step import CollectiveRecord, StepRecord


class RecordingState(Protocol):
    """Read by phases and collective hooks, several times per step."""

    @property
    def running(self) -> bool:
        """Between start and close."""

    @property
    def current(self) -> StepRecord:
        """The step that is being recorded."""

    @property
    def is_exact(self) -> bool:
        """Whether the collectives of this step wait for the device."""

    def add_blocked_time(self, collective: CollectiveRecord, waited: int) -> None:
        """The training thread waited this many ns for a collective that had been started before."""

    def register_group(self, name: str, ranks: tuple[int, ...], called: str) -> None:
        """Write a communication group to the log before its first collective."""


class RecorderControl(RecordingState, Protocol):
    """Called by the watchdog's thread and when the process exits."""

    @property
    def directory(self) -> Path | None: ...

    @property
    def durations(self) -> Sequence[int]:
        """Of the last steps, in ns."""

    @property
    def open_phases(self) -> list[str]:
        """Outermost first."""

    def event(self, kind: str, text: str) -> None: ...

    def sample_memory(self) -> None: ...

    def write(self) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def warn_disk_error(self, error: OSError) -> None: ...
