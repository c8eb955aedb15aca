"""Where computing waits for communication on a side stream: prefetched parameters, the keys of a ring's next neighbour.

A kernel that waits for an event begins as the event ends, after its stream has been idle. So a rank that waits shows which
kernel of its program needs the event; ranks that come later show nothing, but run the same program. For the events e at one
place of the program, with k(e) the number in its step of the first kernel that begins after e:

    waited    the kernel begins within SOON_NS after e ends, the one before it had ended IDLE_NS or more before e, and no
              communication of the rank's own work began in between: else that is what waited
    needed    k, if at least FEWEST executions waited and MOST of them have that k
    kept      needed, unless kernel k began before the end of e in more than SELDOM of all executions

Kernel k of every execution then is a place where the rank's own work goes on only after the event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.comm_events import CommEvents, Ints
from paceline.metrics.timeline.compute_track import ROUNDED_NS, ComputeTrack

Floats = NDArray[np.float64]

SOON_NS = 40_000
IDLE_NS = 15_000
FEWEST = 3
MOST = 0.7
SELDOM = 0.02


@dataclass(frozen=True)
class Awaited:
    """One entry per event that computing waits for, or would wait for if it came later; times in ns."""

    row: Ints
    """Of the event."""
    start: Ints
    """When the kernel that needs it began."""
    ready: Ints
    """When all else that this kernel needs was done; `start` where it did not wait."""
    lag: Ints
    """What passes between the event's end and the kernel's begin when the kernel waits."""


@dataclass(frozen=True)
class _Seen:
    """Candidate events with the kernels behind them."""

    row: Ints
    place: Ints
    number: Ints
    """Of the first kernel after the event, in its step; -1 where there is none."""
    waited: NDArray[np.bool_]
    behind: Ints
    """ns from the event's end to that kernel's begin."""


def awaited_events(
    events: CommEvents,
    aside: NDArray[np.bool_],
    place: Ints,
    step: Ints,
    begins: Floats,
    tracks: Mapping[int, ComputeTrack],
) -> Awaited:
    """Which events on side streams computing waits for; `aside`, `place` and `step` run over all events."""
    seen = _seen(events, aside, place, step, begins, tracks)
    needed = _needed(seen)
    if not needed:
        none = np.zeros(0, dtype=np.int64)
        return Awaited(none, none, none, none)
    numbers = np.array([needed.get(here, (-1, 0))[0] for here in seen.place.tolist()], dtype=np.int64)
    lags = np.array([needed.get(here, (-1, 0))[1] for here in seen.place.tolist()], dtype=np.int64)
    start, before = _kernels(events, seen.row, numbers, step, begins, tracks)
    end = events.end[seen.row]
    early = start < end - ROUNDED_NS
    kept = (numbers >= 0) & (start >= 0)
    for here in needed:
        mine = kept & (seen.place == here)
        if early[mine].sum() > SELDOM * mine.sum():
            kept &= seen.place != here
    kept &= ~early
    close = start[kept] - end[kept] <= SOON_NS
    usual = _usual_gap(seen.place[kept], (start - before)[kept], close, _typical_gaps(events, seen.row[kept], tracks))
    lag = np.clip(start[kept] - end[kept], 0, lags[kept] + SOON_NS)
    waited = close & (before[kept] + usual < end[kept])
    ready = np.where(waited, np.minimum(before[kept] + usual, start[kept]), start[kept])
    return Awaited(seen.row[kept], start[kept], ready, np.where(waited, lag, lags[kept]))


def _seen(
    events: CommEvents,
    aside: NDArray[np.bool_],
    place: Ints,
    step: Ints,
    begins: Floats,
    tracks: Mapping[int, ComputeTrack],
) -> _Seen:
    rows = np.flatnonzero(aside)
    number, behind = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    waited, recorded = np.zeros(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.bool_)
    for rank, track in tracks.items():
        mine = np.flatnonzero((events.rank[rows] == rank) & ~np.isnan(begins[events.rank[rows], step[rows]]))
        recorded[mine] = True
        end = events.end[rows[mine]]
        next_kernel = np.searchsorted(track.starts, end - ROUNDED_NS)
        mine, end, next_kernel = (values[next_kernel < len(track.starts)] for values in (mine, end, next_kernel))
        first = _first_of_step(track, begins[rank])[step[rows[mine]]]
        number[mine] = next_kernel - first
        behind[mine] = track.starts[next_kernel] - end
        before = np.where(next_kernel > 0, track.reached_by[np.maximum(next_kernel - 1, 0)], 0)
        waited[mine] = (behind[mine] <= SOON_NS) & (before <= end - IDLE_NS) & (number[mine] >= 0)
        waited[mine] &= ~_communicates_between(events, ~aside & (events.rank == rank), end, track.starts[next_kernel])
    return _Seen(rows[recorded], place[rows[recorded]], number[recorded], waited[recorded], behind[recorded])


def _communicates_between(events: CommEvents, main: NDArray[np.bool_], since: Ints, until: Ints) -> NDArray[np.bool_]:
    """Whether one of the main events begins in each of these spans."""
    begins = np.sort(events.start[main & (events.op != "step_end")])
    return np.searchsorted(begins, since - ROUNDED_NS) < np.searchsorted(begins, until)


def _first_of_step(track: ComputeTrack, begins: Floats) -> Ints:
    """Number of the first kernel of each step."""
    found: Ints = np.searchsorted(track.starts, np.nan_to_num(begins).astype(np.int64) - ROUNDED_NS).astype(np.int64)
    return found


def _needed(seen: _Seen) -> dict[int, tuple[int, int]]:
    """By place: the kernel that needs its events, and how soon it follows."""
    place, number, behind = seen.place[seen.waited], seen.number[seen.waited], seen.behind[seen.waited]
    needed = {}
    for here in np.unique(place).tolist():
        mine = place == here
        numbers, votes = np.unique(number[mine], return_counts=True)
        best = int(np.argmax(votes))
        if votes[best] >= max(FEWEST, MOST * mine.sum()):
            kernel = int(numbers[best])
            needed[here] = kernel, max(0, int(np.median(behind[mine & (number == kernel)])))
    return needed


def _kernels(
    events: CommEvents, rows: Ints, numbers: Ints, step: Ints, begins: Floats, tracks: Mapping[int, ComputeTrack]
) -> tuple[Ints, Ints]:
    """When the kernel of that number in the event's step began, and when all before it had ended; -1 where there is none."""
    start, before = np.full(len(rows), -1, dtype=np.int64), np.full(len(rows), -1, dtype=np.int64)
    for rank, track in tracks.items():
        mine = np.flatnonzero((events.rank[rows] == rank) & (numbers >= 0))
        at = _first_of_step(track, begins[rank])[step[rows[mine]]] + numbers[mine]
        mine, at = mine[at < len(track.starts)], at[at < len(track.starts)]
        start[mine] = track.starts[at]
        before[mine] = np.where(at > 0, track.reached_by[np.maximum(at - 1, 0)], track.starts[at])
    return start, before


def _usual_gap(place: Ints, gaps: Ints, close: NDArray[np.bool_], typical: Ints) -> Ints:
    """Of each entry the gap before its kernel when it does not wait: the least there, where any did not; else a typical one."""
    _, inverse = np.unique(place, return_inverse=True)
    unknown = np.iinfo(np.int64).max
    least = np.full(int(inverse.max(initial=-1)) + 1, unknown)
    np.minimum.at(least, inverse[~close], np.maximum(gaps[~close], 0))
    return np.where(least[inverse] == unknown, typical, least[inverse])


def _typical_gaps(events: CommEvents, rows: Ints, tracks: Mapping[int, ComputeTrack]) -> Ints:
    """Between kernels of the rank of each row."""
    of_rank = {
        rank: int(max(0.0, np.median(track.starts[1:] - track.reached_by[:-1]))) if len(track.starts) > 1 else 0
        for rank, track in tracks.items()
    }
    return np.array([of_rank.get(rank, 0) for rank in events.rank[rows].tolist()], dtype=np.int64)
