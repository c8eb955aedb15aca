"""Device steps: what a small simulator of a host that runs ahead says, and single cases worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.formats.kineto.device_steps import NO_STEP, UNKNOWN, DeviceWork, StepBounds, device_steps
from paceline.formats.kineto.steps import split_steps

Piece = tuple[int, int, int, int, bool]
"""start, end, stream, launched, communicates"""


def work_of(pieces: list[Piece]) -> DeviceWork:
    start, end, stream, launched, communicates = (
        np.array(column, dtype=np.int64) for column in (zip(*pieces, strict=True) if pieces else [[]] * 5)
    )
    return DeviceWork(start, end, stream, launched, communicates.astype(np.bool_))


def bounds_of(*steps: tuple[int, int]) -> StepBounds:
    start, end = np.array(steps, dtype=np.int64).T
    return StepBounds(np.arange(len(steps)), start, end)


def windows(host: StepBounds, work: DeviceWork) -> list[tuple[int, int, int]]:
    found = device_steps(host, work).bounds
    return list(zip(found.step.tolist(), found.start.tolist(), found.end.tolist(), strict=True))


# -- a simulator -------------------------------------------------------------------------------------------------------


@dataclass
class Machine:
    """A host that launches and a device with two streams that work in order; the host's queue is unlimited."""

    now: int = 0
    free: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    done: list[int] = field(default_factory=list)
    pieces: list[list[Piece]] = field(default_factory=list)
    host: list[tuple[int, int]] = field(default_factory=list)

    def step(self, program: list[tuple[int, int, int]], *, waits: bool, late: int) -> None:
        """(host's cost of the launch, stream, duration) of every kernel; then the second stream joins the first."""
        begin, pieces = self.now, list[Piece]()
        for cost, stream, duration in program:
            self.now += cost
            start = max(self.now + 3, self.free[stream])
            self.free[stream] = start + duration
            pieces.append((start, start + duration, stream, self.now, stream == 1))
        self.free = dict.fromkeys(self.free, max(self.free.values()))
        self.now = max(self.now + 1, max(end for _, end, *_ in pieces) if waits else 0) + late
        self.host.append((begin, self.now))
        self.now += 2
        self.pieces.append(pieces)
        self.done.append(max(self.host[-1][1], max(end for _, end, *_ in pieces)))


def _program(random: np.random.Generator) -> list[tuple[list[tuple[int, int, int]], bool, int]]:
    """Per step its kernels, whether the host waits for the device at its end, and what else the host does."""
    steps = []
    for _ in range(random.integers(3, 9)):
        count = int(random.integers(1, 13))
        columns = random.integers(1, 21, count), random.integers(0, 4, count) // 3, random.integers(1, 61, count)
        kernels = [(int(cost), int(stream), int(duration)) for cost, stream, duration in zip(*columns, strict=True)]
        steps.append((kernels, bool(random.integers(2)), int(random.integers(0, 200))))
    return steps


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_steps_of_a_device_are_those_of_the_simulator(seed: int) -> None:
    random = np.random.default_rng(seed)
    program = _program(random)
    machine = Machine()
    for kernels, waits, late in program:
        machine.step(kernels, waits=waits, late=late)
    first = int(random.integers(len(program)))
    # The recording begins with the host's step: launches of earlier steps are missing, their work is still running.
    begin = machine.host[first][0]
    earlier = [
        (*piece[:3], UNKNOWN, piece[4]) for step in machine.pieces[:first] for piece in step if piece[0] >= begin
    ]
    recorded = [piece for step in machine.pieces[first:] for piece in step]
    shuffled = [(earlier + recorded)[at] for at in random.permutation(len(earlier) + len(recorded))]
    work = work_of(shuffled)
    found = device_steps(bounds_of(*machine.host[first:]), work)
    begins = [max([begin, *(end for _, end, *_ in earlier)])]
    later = zip(machine.host[first + 1 :], machine.done[first:-1], strict=True)
    begins += [max(host_begin, before) for (host_begin, _), before in later]
    if _is_behind(earlier, recorded):
        assert found.bounds.start.tolist() == begins
        assert found.bounds.end.tolist() == machine.done[first:]
        for place, pieces in enumerate(machine.pieces[first:]):
            mine = sorted(work.start[found.place == place].tolist())
            assert mine == sorted(start for start, *_ in pieces)
    columns = split_steps(found, work, (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)))
    parts = columns["computing"] + columns["communication"] - columns["overlapped"] + columns["free"]
    assert parts.tolist() == columns["duration"].tolist()
    assert all((columns[name] >= 0).all() for name in ("computing", "communication", "overlapped", "exposed", "free"))


def _is_behind(earlier: list[Piece], recorded: list[Piece]) -> bool:
    """Whether every stream with earlier work still ran it when the first recorded launch of that stream happened."""
    ended = {stream: end for _, end, stream, *_ in sorted(earlier, key=lambda piece: piece[1])}
    first = {stream: launched for _, _, stream, launched, _ in sorted(recorded, key=lambda piece: -piece[0])}
    return all(stream in first and first[stream] < end for stream, end in ended.items())


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_work_counts_for_the_step_that_launched_it() -> None:
    work = work_of([(10, 90, 0, 5, False), (90, 190, 0, 55, False), (190, 280, 0, 110, False)])
    host = bounds_of((0, 50), (50, 100), (100, 150))
    assert windows(host, work) == [(0, 0, 90), (1, 90, 190), (2, 190, 280)]
    assert device_steps(host, work).place.tolist() == [0, 1, 2]


def test_a_host_that_waits_has_steps_as_long_as_its_own() -> None:
    work = work_of([(10, 90, 0, 5, False), (110, 190, 0, 105, False)])
    assert windows(bounds_of((0, 100), (102, 200)), work) == [(0, 0, 100), (1, 102, 200)]


def test_the_first_step_begins_when_earlier_work_has_ended() -> None:
    pieces = [(1, 40, 0, UNKNOWN, False), (40, 70, 0, UNKNOWN, False), (70, 100, 0, 20, False)]
    found = device_steps(bounds_of((0, 50)), work_of(pieces))
    assert found.place.tolist() == [NO_STEP, NO_STEP, 0]
    assert (found.bounds.start.tolist(), found.bounds.end.tolist()) == ([70], [100])


def test_work_that_ended_before_the_first_recorded_launch_of_its_stream_belongs_to_that_step() -> None:
    """The profiler recorded the device before it recorded the host's calls."""
    pieces = [(30, 33, 7, UNKNOWN, False), (34, 36, 7, UNKNOWN, False), (60, 70, 7, 50, False)]
    assert device_steps(bounds_of((0, 90)), work_of(pieces)).place.tolist() == [0, 0, 0]


def test_work_without_a_launch_belongs_to_the_nearest_launched_work_of_its_stream() -> None:
    pieces = [(10, 20, 0, 5, False), (21, 30, 0, UNKNOWN, False), (70, 80, 0, UNKNOWN, False), (81, 90, 0, 55, False)]
    assert device_steps(bounds_of((0, 50), (50, 100)), work_of(pieces)).place.tolist() == [0, 0, 1, 1]


def test_a_stream_without_launches_counts_by_time_and_so_does_a_trace_without() -> None:
    pieces = [(10, 20, 0, 5, False), (45, 55, 9, UNKNOWN, True), (60, 80, 0, 55, False)]
    assert device_steps(bounds_of((0, 50), (50, 100)), work_of(pieces)).place.tolist() == [0, 0, 1]
    without = device_steps(bounds_of((0, 50), (50, 100)), work_of([(45, 55, 0, UNKNOWN, False)]))
    assert (without.by_launch, without.bounds.end.tolist()) == (False, [50, 100])


def test_steps_at_the_ends_that_launched_nothing_are_left_out() -> None:
    work = work_of([(60, 70, 0, 55, False), (260, 270, 0, 255, False)])
    host = bounds_of((0, 50), (50, 100), (100, 200), (200, 300), (300, 301))
    assert windows(host, work) == [(1, 50, 100), (2, 100, 200), (3, 200, 300)]


def test_a_kernel_that_outlives_the_first_step_does_not_move_its_start() -> None:
    pieces = [(-5, 400, 9, -10, False), (10, 40, 0, 5, False), (110, 140, 0, 105, False)]
    assert windows(bounds_of((0, 100), (100, 200)), work_of(pieces)) == [(0, 0, 100), (1, 100, 200)]


MS = 1_000_000


def test_a_device_that_is_behind_with_what_was_not_recorded_begins_the_first_step_when_its_work_begins() -> None:
    """Two launches have returned, and nothing runs for 20 ms: an idle device would have begun at once."""
    pieces = [
        (20 * MS, 25 * MS, 0, 100, False),
        (25 * MS, 30 * MS, 0, 200, False),
        (30 * MS, 35 * MS, 0, 8 * MS, False),
    ]
    host = bounds_of((0, 5 * MS), (5 * MS, 10 * MS))
    assert windows(host, work_of(pieces)) == [(0, 20 * MS, 30 * MS), (1, 30 * MS, 35 * MS)]


def test_a_first_launch_that_takes_long_is_the_first_step_s_own_time() -> None:
    """The device's runtime starts inside the call: the second launch comes after it."""
    pieces = [(20 * MS, 25 * MS, 0, 100, False), (25 * MS, 30 * MS, 0, 20 * MS, False)]
    assert windows(bounds_of((0, 21 * MS)), work_of(pieces)) == [(0, 0, 30 * MS)]


def test_no_work_and_no_steps() -> None:
    nothing = StepBounds(*(np.empty(0, dtype=np.int64) for _ in range(3)))
    assert len(device_steps(nothing, work_of([])).bounds) == 0
    assert device_steps(nothing, work_of([(1, 2, 0, 0, False)])).place.tolist() == [NO_STEP]


def test_input_that_is_loaded_behind_the_device_s_work_is_not_waited_for() -> None:
    work = work_of([(10, 90, 0, 5, False), (130, 190, 0, 120, False)])
    host = bounds_of((0, 50), (50, 150))
    loading = np.array([50]), np.array([115])
    columns = split_steps(device_steps(host, work), work, loading)
    assert columns["data_wait"] is not None
    assert columns["data_wait"].tolist() == [0, 25]
