"""When each step of a rank began and ended, and which step a timestamp belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class StepWindows:
    """Steps in order of time, ns."""

    steps: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def steps_of(self, times: Sequence[int] | NDArray[np.int64]) -> NDArray[Any] | None:
        """The step of each time, masked (null) outside of all steps; None if no steps were recorded."""
        if not len(self.steps):
            return None
        moments = np.asarray(times, dtype=np.int64)
        found = np.searchsorted(self.starts, moments, side="right") - 1
        inside = (found >= 0) & (moments <= self.ends[found])
        return np.ma.masked_array(self.steps[found], mask=~inside)

    def step_of(self, time: int | None) -> int | None:
        if time is None or not len(self.steps):
            return None
        found = int(np.searchsorted(self.starts, time, side="right")) - 1
        return int(self.steps[found]) if found >= 0 and time <= self.ends[found] else None


NO_STEPS = StepWindows(*(np.empty(0, dtype=np.int64) for _ in range(3)))
