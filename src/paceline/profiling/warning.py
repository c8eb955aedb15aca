"""Warnings of the profiling package: problems with a recording never raise, because that would end training."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class ProfilingWarning(UserWarning):
    """A recording is not as requested; training goes on."""


_collector = threading.local()


def warn(text: str) -> None:
    """Warn at the line of the user's code that called into this package."""
    texts: list[str] | None = getattr(_collector, "texts", None)
    if texts is not None:
        texts.append(text)
    else:
        warnings.warn(text, ProfilingWarning, stacklevel=_depth_of_caller())


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect the warnings of this thread instead of issuing them: files and variables have no line of code to point at."""
    texts: list[str] = []
    _collector.texts = texts
    try:
        yield texts
    finally:
        _collector.texts = None


def _depth_of_caller() -> int:
    frame: FrameType | None = sys._getframe(1)
    depth = 1
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("paceline.profiling"):
        frame, depth = frame.f_back, depth + 1
    return depth
