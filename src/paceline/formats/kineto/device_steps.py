"""Steps of the device: work counts for the step whose host span launched it, however far the host ran ahead.

    end of step k    the later of the end of its host span and of the end of the work it launched
    start of step k  the later of the start of its host span and of the end of step k − 1; of the first step also of the end
                     of work that was launched before it, or, if its first work did not begin although it was launched
                     (the device was behind with work that was not recorded), of the begin of that work

so steps follow each other without overlap, and a device that is never idle has steps as long as its work. Work whose launch
was not recorded belongs to the nearest launched work on its stream. What comes before the first launched work of a stream was
launched earlier than that: in an earlier step if it still ran when that first launch happened (the device was behind), in the
same step otherwise. Streams without any recorded launch, and whole traces without, count by the time at which work ran.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.formats.intervals import Times

UNKNOWN = int(np.iinfo(np.int64).min)
"""No launch was recorded."""
DEVICE_FACTOR = 1 << 20
NO_STEP = -1
"""Launched outside of all steps."""
BEHIND = 1_000_000
"""ns; work that was launched longer ago and did not begin waits for a device that is busy: an idle one needs microseconds."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class StepBounds:
    """Start and end of each step, in order of start."""

    step: Times
    start: Times
    end: Times

    def __len__(self) -> int:
        return len(self.step)

    def only(self, kept: Bools) -> StepBounds:
        return StepBounds(self.step[kept], self.start[kept], self.end[kept])


@dataclass(frozen=True)
class DeviceWork:
    """Everything that ran on the device, ns."""

    start: Times
    end: Times
    stream: Times
    launched: Times
    """When the host launched it, or UNKNOWN."""
    communicates: Bools

    @property
    def has_launches(self) -> bool:
        return bool((self.launched != UNKNOWN).any())


@dataclass(frozen=True)
class DeviceSteps:
    bounds: StepBounds
    place: Times
    """Per piece of work: which of the bounds, or NO_STEP."""
    by_launch: bool
    """Whether work counts for the step that launched it; otherwise for every step in which it ran."""


def stream_key(device: int, stream: int) -> int:
    """One number for a stream of one of several devices."""
    return device * DEVICE_FACTOR + stream


def device_steps(host: StepBounds, work: DeviceWork) -> DeviceSteps:
    """Steps as the device spent them, from the host's spans; steps at both ends that launched nothing are left out."""
    if not work.has_launches:
        return steps_of_device(host, work)
    place = step_at(host, launch_times(work, host))
    used = np.flatnonzero(np.bincount(place[place >= 0], minlength=len(host)))
    if len(used):
        host = host.only((np.arange(len(host)) >= used[0]) & (np.arange(len(host)) <= used[-1]))
        place = np.where(place >= 0, place - used[0], NO_STEP)
    return DeviceSteps(_windows(host, work, place, launch_times(work, host)), place, by_launch=True)


def steps_of_device(bounds: StepBounds, work: DeviceWork) -> DeviceSteps:
    """Bounds that are times of the device: work counts by when it ran."""
    return DeviceSteps(bounds, step_at(bounds, work.start), by_launch=False)


def step_at(bounds: StepBounds, times: Times) -> Times:
    """The step of each moment on the host; between two steps the earlier one."""
    if not len(bounds):
        return np.full(len(times), NO_STEP)
    found = np.searchsorted(bounds.start, times, side="right") - 1
    return np.where((found == len(bounds) - 1) & (times > bounds.end[-1]), NO_STEP, found)


def launch_times(work: DeviceWork, host: StepBounds) -> Times:
    """When each piece of work was launched; where that was not recorded, a time that falls in the same step."""
    known = work.launched != UNKNOWN
    if known.all():
        return work.launched
    times = np.where(known, work.launched, work.start)
    earliest = int(host.start[0]) - 1 if len(host) else 0
    for stream in np.unique(work.stream[~known]):
        rows = np.flatnonzero(work.stream == stream)
        if known[rows].any():
            rows = rows[np.argsort(work.start[rows], kind="stable")]
            times[rows] = _of_neighbours(work, rows, known[rows], earliest)
    return times


def _of_neighbours(work: DeviceWork, rows: Times, known: Bools, earliest: int) -> Times:
    """Launch times of the work of one stream, in the order in which it ran."""
    at = np.arange(len(rows))
    launched = np.flatnonzero(known)
    before = np.maximum.accumulate(np.where(known, at, -1))
    behind = launched[np.minimum(np.searchsorted(launched, at), len(launched) - 1)]
    gap_before = np.where(before >= 0, work.start[rows] - work.end[rows[np.maximum(before, 0)]], np.iinfo(np.int64).max)
    gap_behind = np.where(behind >= at, work.start[rows[behind]] - work.end[rows], np.iinfo(np.int64).max)
    times = work.launched[rows[np.where(gap_before <= gap_behind, before, behind)]]
    first = launched[0]
    if first and work.end[rows[:first]].max() > work.launched[rows[first]]:
        times[:first] = np.minimum(earliest, work.launched[rows[first]])
    return times


def _begin_if_behind(work: DeviceWork, place: Times, launched: Times, begin: int) -> int:
    """When the first step's first work began, if the device was behind with what was not recorded; else `begin`.

    The second launch tells that the first call had returned: a call itself may take long, while the device starts.
    """
    rows = np.flatnonzero((place == 0) & (work.launched != UNKNOWN))
    if len(rows) < 2 or (place == 0).sum() > len(rows):
        return begin
    first, second = int(work.start[rows].min()), int(np.partition(launched[rows], 1)[1])
    return first if first - second > BEHIND else begin


def _windows(host: StepBounds, work: DeviceWork, place: Times, launched: Times) -> StepBounds:
    ends, starts = host.end.copy(), host.start.copy()
    inside = place >= 0
    np.maximum.at(ends, place[inside], work.end[inside])
    if len(host):
        # Work that outlives the first step (a persistent kernel) says nothing about when that step began.
        earlier = ~inside & (launched < host.start[0]) & (work.end <= ends[0])
        starts[0] = (
            work.end[earlier].max(initial=starts[0])
            if earlier.any()
            else _begin_if_behind(work, place, launched, starts[0])
        )
    ends = np.maximum.accumulate(ends)
    starts[1:] = np.maximum(starts[1:], ends[:-1])
    return StepBounds(host.step, starts, ends)
