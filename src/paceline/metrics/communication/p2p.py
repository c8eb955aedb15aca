"""Point-to-point messages: whether both sides wait for each other, or sends are buffered and only receives wait.

Sides that wait for each other end together. A buffered message is recognised by ends that do not coincide while no send
takes long. Then, with times on the cluster clock,

    end(send)    = start(send) + hold(send)
    end(receive) = max(start(receive) + hold(receive), start(send) + latency)

The arrival decided if the message was received about as soon after its send as any message of the same pair, or after a
longer wait than a transfer takes; else it had arrived before the receive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

FEWEST = 4
"""Messages from which a pattern can be inferred."""
TOGETHER_NS = 20_000
"""Sides that wait for each other end within this …"""
TOGETHER_SHARE = 0.2
"""… or within this share of the send."""
OFTEN, HARDLY_EVER = 0.2, 0.1
STEADY = 3.0
"""Sends that do not wait take about equally long: nine of ten less than this many times the median."""
AS_SOON = 1.3


@dataclass(frozen=True)
class Buffered:
    """Messages whose sender goes on at once; arrays run over messages, times in ns."""

    sent: Ints
    """Rows of the sends."""
    received: Ints
    """Rows of the receives."""
    latency: Ints
    """From the begin of the send to the arrival."""
    hold: Ints
    """What the receive of a message takes that has arrived."""


def message_rows(op: NDArray[np.object_], instance: Ints) -> tuple[Ints, Ints]:
    """Rows of sends, and of their receives."""
    sends, receives = np.flatnonzero(op == "send"), np.flatnonzero(op == "receive")
    _, sent, received = np.intersect1d(instance[sends], instance[receives], return_indices=True)
    return sends[sent], receives[received]


def are_buffered(start: Ints, end: Ints, sent: Ints, received: Ints) -> bool:
    """Whether the messages of a run do not make their senders wait; `start` and `end` are those of all rows."""
    if len(sent) < FEWEST:
        return False
    took = end[sent] - start[sent]
    later = end[received] - end[sent]
    tolerance = np.maximum(TOGETHER_NS, TOGETHER_SHARE * took)
    apart, reversed_order = np.mean(later > tolerance), np.mean(later < -tolerance)
    steady = np.quantile(took, 0.9) <= STEADY * np.median(took) + TOGETHER_NS
    return bool(apart >= OFTEN and reversed_order <= HARDLY_EVER and steady)


def buffered_messages(start: Ints, end: Ints, rank: Ints, sent: Ints, received: Ints) -> Buffered:
    """What each of these messages took, and what its receive would take had it come before."""
    travel, took = end[received] - start[sent], end[received] - start[received]
    _, pair = np.unique(rank[sent] * (int(rank.max(initial=0)) + 1) + rank[received], return_inverse=True)
    soonest, least = _least(pair, travel), _least(pair, took)
    floor = np.minimum(least, np.maximum(soonest, 0))
    # True of the soonest of each pair, so every pair has a median.
    decided = (travel <= AS_SOON * soonest) | (took > floor + soonest)
    typical = _medians(pair[decided], travel[decided])[pair]
    return Buffered(
        sent,
        received,
        latency=np.where(decided, travel, np.minimum(travel, typical)).astype(np.int64),
        hold=np.where(decided, np.minimum(floor, took), took).astype(np.int64),
    )


def _least(pair: Ints, values: Ints) -> Ints:
    """The least of each pair, for each message."""
    order = np.lexsort((values, pair))
    _, first = np.unique(pair[order], return_index=True)
    return values[order][first][pair]


def _medians(pair: Ints, values: Ints) -> Ints:
    """The median of each pair, the lower of two in the middle."""
    order = np.lexsort((values, pair))
    _, first, counts = np.unique(pair[order], return_index=True, return_counts=True)
    medians: Ints = values[order][first + (counts - 1) // 2]
    return medians
