"""How a step was spent, from when the device computed and communicated, as Ascend's profilers define it.

computing     = |union of computing|            communication = |union of communication|
exposed       = |union of both| - computing     overlapped    = communication - exposed
free          = last device work - first device work - computing - exposed
preparing     = first device work - start of the step
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Spans = NDArray[np.int64]
"""Intervals as two rows, starts and ends, ns."""
NO_SPANS: Spans = np.empty((2, 0), dtype=np.int64)


@dataclass(frozen=True)
class DeviceWork:
    """When a device worked: merged intervals."""

    computing: Spans
    communication: Spans

    @property
    def both(self) -> Spans:
        return merge_spans(np.concatenate([self.computing, self.communication], axis=1))


def split_step(work: DeviceWork, both: Spans, start: int, end: int) -> dict[str, int]:
    """The parts of the step between these times; {} if the device did nothing in it."""
    done = clip(both, start, end)
    if not done.size:
        return {}
    computed, communicated = length(clip(work.computing, start, end)), length(clip(work.communication, start, end))
    exposed = length(done) - computed
    return {
        "computing": computed,
        "communication": communicated,
        "exposed": exposed,
        "overlapped": communicated - exposed,
        "free": int(done[1, -1] - done[0, 0]) - length(done),
        "preparing": int(done[0, 0]) - start,
    }


def merge_spans(spans: Spans) -> Spans:
    """Sorted, disjoint intervals that cover the same time."""
    if not spans.size:
        return spans
    ordered = spans[:, np.argsort(spans[0], kind="stable")]
    reach = np.maximum.accumulate(ordered[1])
    first = np.concatenate([[True], ordered[0, 1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.stack([ordered[0, first], reach[last]])


def clip(spans: Spans, start: int, end: int) -> Spans:
    """The part of disjoint intervals inside a window."""
    clipped = np.clip(spans, start, end)
    return clipped[:, clipped[1] > clipped[0]]


def length(spans: Spans) -> int:
    return int((spans[1] - spans[0]).sum())
