"""Find the directory a framework's profiler has just written for this process."""

from __future__ import annotations

import os
import re
from pathlib import Path

from paceline.core.errors import PacelineError
from paceline.profiling.output_files import RecordingSpec

_NAME = re.compile(r"(?P<worker>.+?)(?:_(?P<pid>\d+))?_(?P<time>\d{14,17})_ascend_(?:ms|pt)")


def find_new_directory(spec: RecordingSpec, suffix: str) -> Path:
    """The newest `{worker}_{pid}_{time}_ascend_{suffix}`; other hosts may write here too, with the same pid."""
    worker, pid = spec.worker or spec.identity.host, str(os.getpid())
    found = [
        (name["time"], path)
        for path in spec.directory.glob(f"*_ascend_{suffix}")
        if (name := _NAME.fullmatch(path.name)) and name["worker"] == worker and name["pid"] in (pid, None)
    ]
    if not found:
        raise PacelineError(
            f"the framework's profiler wrote nothing to {spec.directory}", hint="see the log of the framework"
        )
    return max(found)[1]
