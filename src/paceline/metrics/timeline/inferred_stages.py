"""Pipeline stages inferred from messages, where none are declared: activations go down the pipeline before gradients return.

Of two ranks that send to each other, the one that sends first in a step comes before the other; a rank's stage is the
length of the longest chain before it. Ranks that only share collectives with others are in the stage of those.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.timeline.rank_timeline import Timeline

UNKNOWN = -1


def inferred_stages(line: Timeline) -> NDArray[np.int64]:
    """The stage of every rank, -1 where nothing tells it (no pipeline, or one that runs in a circle)."""
    unknown = np.full(len(line.events.ranks), UNKNOWN, dtype=np.int64)
    ahead = _neighbours(line)
    if not ahead:
        return unknown
    stages = dict.fromkeys((rank for pair in ahead for rank in pair), 0)
    for _ in range(len(stages)):
        longer = {b: stages[a] + 1 for a, b in ahead if stages[b] <= stages[a]}
        if not longer:
            even = len(set(Counter(stages.values()).values())) == 1  # else some pairs are not pairs
            if even:
                unknown[list(stages)] = list(stages.values())
            return unknown
        for rank, stage in longer.items():
            stages[rank] = max(stages[rank], stage)
    return unknown  # interleaved stages: the last one sends to the first


def _neighbours(line: Timeline) -> list[tuple[int, int]]:
    """(before, behind) of ranks that send to each other."""
    events = line.events
    rows = np.flatnonzero(events.is_message & (events.members[events.instance] == 2))
    pairs = rows[np.lexsort((events.rank[rows], events.instance[rows]))].reshape(-1, 2)
    pairs = pairs[np.argsort(events.end[pairs].min(axis=1), kind="stable")]
    seen: set[tuple[int, int, int]] = set()
    votes: Counter[tuple[int, int]] = Counter()
    for one, other in pairs.tolist():
        a, b = int(events.rank[one]), int(events.rank[other])
        if (int(line.step[one]), a, b) in seen:
            continue
        seen.add((int(line.step[one]), a, b))
        votes[(a, b) if _sends(line, one, other) else (b, a)] += 1
    return [pair for pair, count in votes.items() if count > votes[pair[::-1]]]


def _sends(line: Timeline, one: int, other: int) -> bool:
    """Whether data goes from one to the other; in combined calls the one that waited longer is the one that receives."""
    events = line.events
    if events.op[one] == "send_receive":
        return bool(events.duration[one] <= events.duration[other])
    return bool(events.op[one] == "send")
