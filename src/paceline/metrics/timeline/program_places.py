"""Places of the program: numbers that are equal on ranks and steps that run the same program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.comm_events import Bools, CommEvents, Ints

Floats = NDArray[np.float64]

LARGEST = 1 << 62


def place_codes(events: CommEvents, step: Ints) -> Ints:
    """One number per (kind of operator, how many members, which group of that kind, which of them in this step).

    The same on ranks that run one program, in whatever order its events came to start. A message has two members, also
    where the recording lacks one side of it: else those behind it would count as one place earlier.
    """
    kind = joint(events.numbered_ops[0], np.where(events.is_message, 2, events.members[events.instance]))
    kind_here = joint(events.rank, kind)
    group = _numbered(kind_here, joint(kind_here, events.numbered_groups[0]))
    turn = _turns(joint(events.rank, step, kind, group))
    return joint(kind, group, turn)


def share_at(code: Ints, chosen: Bools) -> Floats:
    """For each value: which share of those with the same code was chosen."""
    numbers = np.unique(code, return_inverse=True)[1]
    share: Floats = (np.bincount(numbers, chosen) / np.bincount(numbers))[numbers]
    return share


def least_at(code: Ints, values: Ints, chosen: Bools) -> Ints:
    """The least of the chosen values at each code, -1 where none was chosen."""
    least = np.full(int(code.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, code[chosen], values[chosen])
    return np.where(least == np.iinfo(np.int64).max, -1, least)


def joint(*columns: Ints) -> Ints:
    """One number for each combination of values."""
    code, most = columns[0], int(columns[0].max(initial=0))
    for column in columns[1:]:
        width = int(column.max(initial=0)) + 1
        if most >= LARGEST // width:  # numbers are made small as seldom as possible: it sorts
            code = np.unique(code, return_inverse=True)[1]
            most = len(code)
        code, most = code * width + column, most * width + width - 1
    return np.unique(code, return_inverse=True)[1]


def _numbered(owner: Ints, item: Ints) -> Ints:
    """The number of each item among those of its owner, in the order in which they first occur."""
    _, first, which = np.unique(item, return_index=True, return_inverse=True)
    order = np.lexsort((first, owner[first]))
    owners = owner[first][order]
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order)) - np.searchsorted(owners, owners)
    return number[which]


def _turns(code: Ints) -> Ints:
    """How often each value has occurred before.

    >>> _turns(np.array([5, 7, 5, 5, 7])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    turn = np.empty(len(code), dtype=np.int64)
    turn[order] = np.arange(len(code)) - np.searchsorted(ordered, ordered)
    return turn
