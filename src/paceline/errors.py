"""The one exception users meet: what happened, where, and what to do next.

PacelineError
├── FormatError      a file does not hold what its name or its head promised
└── UsageError       the request itself makes no sense (exit code 2)
"""

from __future__ import annotations

# Training jobs import this module too: it loads nothing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


class PacelineError(Exception):
    """Something a person can act on; the CLI prints it without a traceback."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(PacelineError):
    """A wrong argument: said in one sentence, exit code 2."""

    exit_code = 2


class FormatError(PacelineError):
    """A file that cannot be read as what it claims to be."""

    def __init__(self, message: str, *, file: Path | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.line = line


def is_interrupt(error: BaseException) -> bool:
    """Ctrl-C while DuckDB works arrives as a RuntimeError, which must not pass for a fault of the data."""
    return isinstance(error, KeyboardInterrupt) or (
        isinstance(error, RuntimeError) and str(error) == "Query interrupted"
    )
