"""Communication made by hand: as arrays, or as rows of `collectives`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from paceline.metrics.communication.comm_events import CommEvents


class Event(NamedTuple):
    """One rank's part of a collective."""

    rank: int
    start: float
    end: float
    instance: int = 0
    op: str = "all_reduce"
    step: int = 0
    group: str = "g"


def comm_events(*events: Event, buffered_sends: bool = False) -> CommEvents:
    """These events, ordered by rank and start."""
    ordered = sorted(events, key=lambda event: (event.rank, event.start, event.end))
    ranks, rank = np.unique(np.array([event.rank for event in ordered], dtype=np.int64), return_inverse=True)
    return CommEvents(
        ranks=ranks,
        rank=rank.astype(np.int64),
        step=np.array([event.step for event in ordered], dtype=np.int64),
        group_key=np.array([event.group for event in ordered], dtype=object),
        op=np.array([event.op for event in ordered], dtype=object),
        start=np.array([event.start for event in ordered], dtype=np.int64),
        end=np.array([event.end for event in ordered], dtype=np.int64),
        bytes=np.full(len(ordered), -1),
        instance=np.array([event.instance for event in ordered], dtype=np.int64),
        buffered_sends=buffered_sends,
    )


def collective(rank: int, start: float | None, end: float | None, **more: Any) -> dict[str, Any]:
    """A row of `collectives`: an all-reduce of group g in step 0."""
    duration = None if end is None or start is None else int(end - start)
    return {
        "rank": rank,
        "step": 0,
        "group": "g",
        "op": "all_reduce",
        "name": "x",
        "sequence": 0,
        "peer": None,
        "start": None if start is None else int(start),
        "duration": duration,
        **more,
    }
