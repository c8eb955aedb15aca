"""Functions that workers run in these tests; importable by them, because this directory is on their path."""

from __future__ import annotations

import os
import signal

from paceline.formats.base import Sink


def double(number: int) -> int:
    """Twice the number; 13 kills its worker."""
    if number == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def read_nothing_and_die(sink: Sink) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
