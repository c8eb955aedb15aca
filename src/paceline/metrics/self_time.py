"""Self time: what a rank spends on its own work in a step, waiting for others left out.

    self_time(r, n) = duration - exposed communication      where the device recorded both for all peers of r
                    = work along the rank's timeline         else (metrics/timeline/rank_timeline.py)

A rank does not wait in communication that computing covers, so what is left after exposed communication is its own. The
timeline may take a wait inside a message that was posted early for work; so it is only asked where it has to be, and then
for a whole peer group: times of different origin are not compared with each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.peers import PeerGroups

if TYPE_CHECKING:
    from paceline.metrics.timeline.rank_timeline import Timeline

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def self_time(recorded: Floats, known: Bools, groups: PeerGroups, timeline: Callable[[], Timeline]) -> Floats:
    """ns, ranks × steps; nan where a rank did not record the step.

    `recorded` is duration - exposed, nan where unknown; `known` says which steps a rank recorded in any way; the timeline
    is asked for only where a group needs it.
    """
    unrecorded = np.isnan(recorded)
    if not (unrecorded & known).any():
        return recorded
    line = timeline()
    result = line.self_time()
    for group in groups:
        rows = list(group)
        if not (unrecorded[rows] & line.known[rows]).any():
            result[rows] = recorded[rows]
    return result
