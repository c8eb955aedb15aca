"""Timelines of a few events, for tests of replays whose answers are worked out on paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.metrics.communication.comm_events import CommEvents
from paceline.metrics.timeline.rank_timeline import Timeline

Row = dict[str, Any]


def small_timeline(
    rows: Sequence[Row],
    *,
    begin: Sequence[int] | None = None,
    steps: Sequence[int] = (1,),
    ranks: Sequence[int] | None = None,
    buffered_sends: bool = False,
) -> Timeline:
    """From rows in order of rank and start: rank, op, instance, start, end, and where they differ from nothing step (a place
    in `steps`), group, anchor, work, after, lag, overlap, side, place, own (self time when it was reached)."""
    count = 1 + max((row["rank"] for row in rows), default=-1) if ranks is None else len(ranks)

    def column(name: str, default: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([row.get(name, default) for row in rows], dtype=np.int64)

    numbers, step = np.array(steps, dtype=np.int64), column("step")
    events = CommEvents(
        ranks=np.arange(count) if ranks is None else np.array(ranks),
        rank=column("rank"),
        step=numbers[step],
        group_key=np.array([row.get("group", "g") for row in rows], dtype=object),
        op=np.array([row["op"] for row in rows], dtype=object),
        start=column("start"),
        end=column("end"),
        bytes=column("bytes", -1),
        instance=column("instance"),
        buffered_sends=buffered_sends,
    )
    return Timeline(
        events=events,
        steps=numbers,
        step=step,
        is_end=events.op == "step_end",
        side_stream=column("side").astype(np.bool_),
        overlap=column("overlap"),
        anchor=column("anchor", -1),
        work=column("work"),
        after=column("after", -1),
        lag=column("lag"),
        begin=np.array(begin if begin is not None else [0] * count, dtype=np.int64),
        known=np.ones((count, len(numbers)), dtype=np.bool_),
        place=column("place"),
        self_time_until=column("own").astype(np.float64),
    )


def event(rank: int, op: str, instance: int, start: int, end: int, work: int = 0, anchor: int = -1, **more: Any) -> Row:
    return {
        "rank": rank, "op": op, "instance": instance, "start": start, "end": end, "work": work, "anchor": anchor, **more,
    }  # fmt: skip


def step_end(rank: int, instance: int, at: int, work: int, anchor: int, **more: Any) -> Row:
    return event(rank, "step_end", instance, at, at, work, anchor, **more)
