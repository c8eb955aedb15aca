"""Output writers: a run as files of one format, registered as entry points of the group `paceline.writers`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.core.errors import PacelineError, UsageError
from paceline.core.i18n import Language
from paceline.core.plugins import load_entry_point, plugins
from paceline.run.run import Run

ENTRY_POINTS = "paceline.writers"


@dataclass(frozen=True)
class ExportOptions:
    """What a user can ask of every writer; one that cannot do it raises UsageError."""

    ranks: str | None = None
    """Only these, e.g. 0,5,8-15; None = all."""
    language: Language = "en"


class OutputWriter(Protocol):
    """What an entry point of the group names: an object with these two methods."""

    def default_name(self, source: str) -> str:
        """File or directory to write where the user names none; `source` is the name of the run."""

    def write(self, run: Run, target: Path, options: ExportOptions) -> str:
        """Write the run; returns what was written, for people. What exists already is not overwritten by directories."""


def find_writer(name: str) -> OutputWriter:
    """The writer of a name, ours or an installed package's."""
    known = plugins(ENTRY_POINTS)
    if name not in known:
        raise UsageError(f"--to {name}: unknown writer", hint=f"known: {', '.join(sorted(known))}")
    writer: OutputWriter = load_entry_point(known[name])
    if not callable(getattr(writer, "write", None)) or not callable(getattr(writer, "default_name", None)):
        raise PacelineError(f"--to {name}: {known[name].value} is not a writer", hint="see paceline/output/writer.py")
    return writer
