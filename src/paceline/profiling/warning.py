"""How profiling speaks up inside a job: a warning of its own kind, never an exception that would end training."""

from __future__ import annotations

import sys
import warnings
from types import FrameType


class ProfilingWarning(UserWarning):
    """Something about a recording is not as asked; training goes on."""


def warn(text: str) -> None:
    """Warn at the line of the user's code that called into this room."""
    warnings.warn(text, ProfilingWarning, stacklevel=_depth_of_caller())


def _depth_of_caller() -> int:
    frame: FrameType | None = sys._getframe(1)
    depth = 1
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("paceline.profiling"):
        frame, depth = frame.f_back, depth + 1
    return depth
