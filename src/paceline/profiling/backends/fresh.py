"""The directory a framework has just written for this process."""

from __future__ import annotations

import os
from pathlib import Path

from paceline.errors import PacelineError


def newest_directory(parent: Path, suffix: str) -> Path:
    """`*_{pid}_{time}_ascend_{suffix}` of this process, by the time in its name."""
    found = sorted(parent.glob(f"*_{os.getpid()}_*_ascend_{suffix}"), key=lambda path: path.name.rsplit("_", 3)[1])
    if not found:
        raise PacelineError(f"the framework's profiler left nothing in {parent}", hint="its own log says why")
    return found[-1]
