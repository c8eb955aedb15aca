"""Errors for users: what happened, where, and what to do next.

PacelineError
├── FormatError      a file's content is not what its name or header promises
└── UsageError       an invalid argument or request (exit code 2)
"""

from __future__ import annotations

# Training jobs import this module too, so it imports nothing at run time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from paceline.core.message import Sentence


class PacelineError(Exception):
    """An error the user can act on; the CLI prints it without a traceback."""

    exit_code = 1

    def __init__(self, message: Sentence, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.said = message
        self.hint = hint


class UsageError(PacelineError):
    """An invalid argument; exit code 2."""

    exit_code = 2


class FormatError(PacelineError):
    """A file that cannot be read as the format it claims to be."""

    def __init__(self, message: Sentence, *, file: Path | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.line = line


def is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C was pressed: DuckDB reports it as a RuntimeError, which must not count as an error in the data."""
    return isinstance(error, KeyboardInterrupt) or (
        isinstance(error, RuntimeError) and str(error) == "Query interrupted"
    )
