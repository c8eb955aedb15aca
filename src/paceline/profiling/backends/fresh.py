"""The directory a framework has just written for this process."""

from __future__ import annotations

import os
import re
from pathlib import Path

from paceline.errors import PacelineError
from paceline.profiling.output import Order

_NAME = re.compile(r"(?P<worker>.+?)(?:_(?P<pid>\d+))?_(?P<time>\d{14,17})_ascend_(?:ms|pt)")


def newest_directory(order: Order, suffix: str) -> Path:
    """`{worker}_{pid}_{time}_ascend_{suffix}` by the time in its name; other hosts may write here too, with the same pid."""
    worker, pid = order.worker or order.identity.host, str(os.getpid())
    found = [
        (name["time"], path)
        for path in order.directory.glob(f"*_ascend_{suffix}")
        if (name := _NAME.fullmatch(path.name)) and name["worker"] == worker and name["pid"] in (pid, None)
    ]
    if not found:
        raise PacelineError(f"the framework's profiler left nothing in {order.directory}", hint="its own log says why")
    return max(found)[1]
