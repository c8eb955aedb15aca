"""Which collectives run beside computing, where a recording knows the phases of a step only (MindInsight's step trace).

A step is input wait, forward and backward, tail; nothing says when the device computed. But collectives that are issued
during backward and waited for at its end leave traces in their own times, those of a run of sums of one group:

    straddled     backward ends inside a sum: something computed while it ran
    queued        at one place of the program some sums begin when the one before ends, others well after that
    from begin    begin(i + 1) - begin(i) is steadier over ranks and steps than begin(i + 1) - end(i): what lies between two
                  sums is computing that goes on while the first is waited for by others

Where a run of sums shows any of these, computing goes on until backward ends, so that

    exposed(r, n)    = time in sums after backward + time in all other collectives
    overlapped(r, n) = time in sums until then
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.comm_events import Bools, CommEvents, Ints

Floats = NDArray[np.float64]

OFTEN = 0.2
"""Share of the steps in which something shows, from which it is the program."""
QUEUED_NS = 10_000
APART_NS = 10 * QUEUED_NS
STEADIER = 0.5
FEWEST_GAPS = 8


def overlap_by_phases(
    events: CommEvents, rank: Ints, column: Ints, backward_end: Floats
) -> tuple[Floats, Floats] | None:
    """(overlapped, exposed), ranks × steps, ns; None where nothing computes beside collectives, or nothing tells.

    `rank` and `column` are the row and the column of each event in `backward_end`.
    """
    if events.is_message.any():
        return None  # stages wait inside their phases
    end_of_backward = backward_end[rank, column]
    known = ~np.isnan(end_of_backward)
    sums = events.is_op("all_reduce", "reduce_scatter") & known
    beside = np.zeros(len(events.op), dtype=np.bool_)
    for group in set(events.group_key[sums].tolist()):
        rows = np.flatnonzero(sums & (events.group_key == group))
        if _runs_beside(events, rows, rank, column, end_of_backward):
            beside[rows] = True
    if not beside.any():
        return None
    start, end = events.start.astype(np.float64), events.end.astype(np.float64)
    behind = np.where(beside, np.maximum(0, end - np.maximum(start, end_of_backward)), end - start)
    exposed, overlapped = np.zeros(backward_end.shape), np.zeros(backward_end.shape)
    np.add.at(exposed, (rank[known], column[known]), behind[known])
    np.add.at(overlapped, (rank[known], column[known]), (end - start - behind)[known])
    unknown = np.isnan(backward_end)
    exposed[unknown] = overlapped[unknown] = np.nan
    return overlapped, exposed


def _runs_beside(events: CommEvents, rows: Ints, rank: Ints, column: Ints, end_of_backward: Floats) -> bool:
    """Whether the sums of one group do; rows are ordered by rank and begin."""
    start, end = events.start[rows], events.end[rows]
    inside = (start + APART_NS < end_of_backward[rows]) & (end_of_backward[rows] + APART_NS < end)
    step = rank[rows] * (int(column.max()) + 1) + column[rows]
    if len(np.unique(step[inside])) >= OFTEN * len(np.unique(step)):
        return True
    same = (step[1:] == step[:-1]) & (rows[1:] == rows[:-1] + 1)  # nothing else is communicated between the two
    places = _turns(step)[1:][same]
    from_end, from_begin = (start[1:] - end[:-1])[same], (start[1:] - start[:-1])[same]
    return _sometimes_queued(places, from_end) or _steadier_from_begin(places, from_end, from_begin)


def _turns(step: Ints) -> Ints:
    """The number of each row among those of its step; rows of a step follow each other.

    >>> _turns(np.array([4, 4, 4, 9, 9])).tolist()
    [0, 1, 2, 0, 1]
    """
    first = np.flatnonzero(np.concatenate([[True], step[1:] != step[:-1]]))
    turns: Ints = np.arange(len(step)) - np.repeat(first, np.diff(np.append(first, len(step))))
    return turns


def _sometimes_queued(places: Ints, from_end: Ints) -> bool:
    queued, apart = from_end <= QUEUED_NS, from_end > APART_NS
    counted = np.array([(queued[places == place].mean(), apart[places == place].any()) for place in np.unique(places)])
    return bool(len(counted) and ((counted[:, 0] >= OFTEN) & (counted[:, 1] > 0)).any())


def _steadier_from_begin(places: Ints, from_end: Ints, from_begin: Ints) -> bool:
    """By the spread over ranks and steps of what did not queue, summed over the places."""
    apart: Bools = from_end > QUEUED_NS
    ends, begins = 0.0, 0.0
    for place in np.unique(places):
        here = apart & (places == place)
        if here.sum() >= FEWEST_GAPS:
            ends += _spread(from_end[here])
            begins += _spread(from_begin[here])
    return ends > 3 * QUEUED_NS and begins < STEADIER * ends


def _spread(values: Ints) -> float:
    return float(np.median(np.abs(values - np.median(values))))
