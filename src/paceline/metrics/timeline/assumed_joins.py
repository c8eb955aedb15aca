"""Where no collective was recorded (profiler level 0): the one collective per step that its durations prove.

Ranks whose steps take equally long although their work does not, wait for each other in every step. What they waited and
communicated is the exposed communication of the step; when in the step is not known, so it is put at the end:

    start(join of rank r, step n) = end(step n of r) - exposed(r, n)

The last to arrive does not wait, so the least exposed communication of a step is its transfer, as of any collective. Without
this join, the time that peers wait for a slow rank would pass for their own work. Steps are laid one after the other from
zero on every rank, because nothing aligns the clocks of hosts.
"""

from __future__ import annotations

import numpy as np

from paceline.metrics.communication.comm_events import CommEvents
from paceline.metrics.timeline.step_bounds import StepBounds

IN_STEP = 0.05
"""Steps of ranks that wait for each other differ by less than this share of their duration."""


def assumed_joins(bounds: StepBounds, events: CommEvents) -> CommEvents | None:
    """One event per rank and step; None where collectives were recorded or nothing shows that ranks wait for each other."""
    if len(events.rank) or not _in_step(bounds):
        return None
    bounds.lay_from_zero()
    ranks, steps = bounds.duration.shape
    end = bounds.end.astype(np.int64).ravel()
    return CommEvents(
        ranks=bounds.ranks,
        rank=np.repeat(np.arange(ranks), steps),
        step=np.tile(bounds.steps, ranks),
        group_key=np.full(ranks * steps, "step", dtype=object),
        op=np.full(ranks * steps, "all_reduce", dtype=object),
        start=end - bounds.exposed.astype(np.int64).ravel(),
        end=end,
        bytes=np.full(ranks * steps, -1, dtype=np.int64),
        instance=np.tile(np.arange(steps), ranks),
    )


def _in_step(bounds: StepBounds) -> bool:
    """Several ranks, all split into work and exposed communication, whose steps take equally long."""
    duration, exposed = bounds.duration, bounds.exposed
    if len(duration) < 2 or not duration.size or np.isnan(duration).any() or np.isnan(exposed).any():
        return False
    if not exposed.any() or (exposed > duration).any() or (duration <= 0).any():
        return False
    total = duration.sum(axis=1)
    return bool(np.ptp(total) <= IN_STEP * np.median(total))
