"""How profiling speaks up inside a job: a warning of its own kind, never an exception that would end training."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class ProfilingWarning(UserWarning):
    """Something about a recording is not as asked; training goes on."""


_collected = threading.local()


def warn(text: str) -> None:
    """Warn at the line of the user's code that called into this room."""
    texts: list[str] | None = getattr(_collected, "texts", None)
    if texts is not None:
        texts.append(text)
    else:
        warnings.warn(text, ProfilingWarning, stacklevel=_depth_of_caller())


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect what this thread warns of instead: for files and variables, which have no line of code to point at."""
    texts: list[str] = []
    _collected.texts = texts
    try:
        yield texts
    finally:
        _collected.texts = None


def _depth_of_caller() -> int:
    frame: FrameType | None = sys._getframe(1)
    depth = 1
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("paceline.profiling"):
        frame, depth = frame.f_back, depth + 1
    return depth
