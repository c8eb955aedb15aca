"""Recording of one rank: columns of steps, kernels and communication operators, on the clock of the rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from paceline.simulate.cluster import Cluster, Ints, ticks
from paceline.simulate.cluster_state import ClusterState
from paceline.simulate.compute_times import rank_compute_times
from paceline.simulate.intervals import Intervals, union
from paceline.simulate.program import StageProgram
from paceline.simulate.routing import MessageRoute, routes
from paceline.simulate.schedule_engine import SimulatedTimeline, StageTimes

FIRST_STEP = 1  # steps are numbered from here
NOMINAL_MHZ = 1800
CLOCKS = 4  # stream of random numbers


@dataclass(frozen=True)
class StepColumns:
    """One entry per step."""

    number: Ints
    start: Ints
    end: Ints
    ready: Ints  # the batch is loaded, forward begins
    backward_end: Ints
    computing: Ints
    communication: Ints
    overlapped: Ints
    bubble: Ints
    first_work: Ints  # start of the first kernel or communication

    @property
    def duration(self) -> Ints:
        return self.end - self.start

    @property
    def exposed(self) -> Ints:
        return self.communication - self.overlapped

    @property
    def free(self) -> Ints:
        return self.duration - self.computing - self.exposed


@dataclass(frozen=True)
class KernelColumns:
    """One entry per kernel execution, in time order; `template` is the index of the program's kernel."""

    step: Ints
    start: Ints
    duration: Ints
    wait: Ints
    template: Ints

    def of(self, step: int) -> KernelColumns:
        chosen = self.step == step
        return KernelColumns(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class CommOpColumns:
    """One entry per communication operator, in order of start; `template` is the index of the program's message.

    duration = wait + transit;  sync = the part of wait before this rank's first byte;  idle = 0
    A receiver sends nothing: its whole duration is wait (the transfer is recorded by the sender).
    """

    step: Ints
    template: Ints
    sequence: Ints
    start: Ints
    duration: Ints
    transit: Ints
    wait: Ints
    sync: Ints

    def of(self, step: int) -> CommOpColumns:
        chosen = self.step == step
        return CommOpColumns(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Recording:
    """Everything one rank recorded."""

    rank: int
    cluster: Cluster
    state: ClusterState
    program: StageProgram
    offset: int  # ns this rank's clock is ahead of true time
    steps: StepColumns
    kernels: KernelColumns
    comm_ops: CommOpColumns

    @cached_property
    def routes(self) -> tuple[MessageRoute, ...]:
        """Per message of the program: group, link, packets."""
        return routes(self.cluster, self.state, self.program, self.rank)

    @cached_property
    def evenly_loaded(self) -> bool:
        return bool((self.state.load == 1.0).all())

    def load(self, template: int, step: int) -> float:
        """Tokens of the kernel in that step, relative to an even load."""
        kernel = self.program.kernels[template]
        routed = float(self.state.expert_load[self.rank, step - FIRST_STEP]) if kernel.expert else 1.0
        if kernel.micro_batch < 0 or self.evenly_loaded:
            return routed
        return routed * float(
            self.state.load[step - FIRST_STEP, self.cluster.coordinates(self.rank)[0], kernel.micro_batch]
        )

    def memory_calls(self, step: int) -> list[tuple[str, int, int]]:
        """(API, start, duration) of the host freeing and allocating memory, while the device is idle."""
        stall = int(self.state.allocation_stalls[self.rank])
        if not stall:
            return []
        kernels = self.kernels.of(step)
        position = len(kernels.start) // 3
        begin, part = int(kernels.start[position] - kernels.wait[position]), stall // 32 * 2 // 10 * 10
        names = ("aclrtFreePhysical", "aclrtMallocPhysical")
        return [(names[call % 2], begin + call * part, part) for call in range(16)]

    def computing(self, step: int) -> Intervals:
        kernels = self.kernels.of(step)
        return union(kernels.start, kernels.duration)

    def communicating(self, step: int) -> Intervals:
        comm_ops = self.comm_ops.of(step)
        return union(comm_ops.start, comm_ops.duration)

    def megahertz(self, index: int) -> int:
        """AI core clock in the index-th step."""
        slower = float(self.state.frequency[self.rank, int(self.steps.number[index]) - FIRST_STEP])
        return round(NOMINAL_MHZ / slower)

    def without_step(self, number: int) -> Recording:
        """The same recording without this step."""
        kept = self.steps.number != number
        steps = StepColumns(*(getattr(self.steps, name)[kept] for name in self.steps.__dataclass_fields__))
        kernels, comm_ops = self.kernels, self.comm_ops
        return replace(
            self,
            steps=steps,
            kernels=KernelColumns(*(getattr(kernels, f)[kernels.step != number] for f in kernels.__dataclass_fields__)),
            comm_ops=CommOpColumns(
                *(getattr(comm_ops, f)[comm_ops.step != number] for f in comm_ops.__dataclass_fields__)
            ),
        )


def clock_offsets(cluster: Cluster, state: ClusterState) -> Ints:
    """ns each rank's clock is ahead: hosts differ by milliseconds, cards of a host by microseconds."""
    spec = cluster.spec
    random = np.random.default_rng((spec.seed, CLOCKS))
    hosts = random.uniform(-5e6, 5e6, spec.hosts)
    own = random.uniform(-2e4, 2e4, spec.world)
    skew = np.repeat(hosts, spec.devices) + own if spec.clock_skew else np.zeros(spec.world)
    return ticks(skew + state.clock)


def record(timeline: SimulatedTimeline, rank: int, offset: int) -> Recording:
    """Recording of one rank, from the timeline; its kernels are generated again rather than kept."""
    cluster = timeline.cluster
    stage, column = divmod(rank, cluster.spec.stage_size)
    program, times = timeline.programs[stage], timeline.stages[stage]
    shift = cluster.spec.start + offset
    kernels = _kernels(timeline, program, times, rank, shift)
    comm_ops = _comm_op_columns(program, times, column, shift)
    steps = _steps(program, times, column, shift, kernels, comm_ops)
    return Recording(rank, cluster, timeline.state, program, offset, steps, kernels, comm_ops)


def _kernels(
    timeline: SimulatedTimeline, program: StageProgram, times: StageTimes, rank: int, shift: int
) -> KernelColumns:
    cluster = timeline.cluster
    column, count = rank % cluster.spec.stage_size, len(program.kernels)
    lengths = np.diff(np.append(program.bounds, count))
    starts, durations, gaps = [], [], []
    for step in range(cluster.spec.steps):
        work = rank_compute_times(cluster, timeline.state, program, rank, step)
        both = np.cumsum(work.gaps + work.durations)
        before = np.repeat(np.concatenate(([0], both))[program.bounds], lengths)
        segment = np.repeat(times.segments[step, :, column], lengths)
        starts.append(segment + both - before - work.durations)
        durations.append(work.durations)
        gaps.append(work.gaps)
    numbers = np.repeat(np.arange(cluster.spec.steps) + FIRST_STEP, count)
    template = np.tile(np.arange(count), cluster.spec.steps)
    return KernelColumns(
        numbers, np.concatenate(starts) + shift, np.concatenate(durations), np.concatenate(gaps), template
    )


def _comm_op_columns(program: StageProgram, times: StageTimes, column: int, shift: int) -> CommOpColumns:
    steps, messages = times.arrival.shape[:2]
    arrival, moving, done, link = (
        getattr(times, name)[:, :, column].reshape(-1) for name in ("arrival", "moving", "done", "link")
    )
    number = np.repeat(np.arange(steps), messages)
    template = np.tile(np.arange(messages), steps)
    receiving = np.tile(_receives(program), steps)
    link, moving = np.where(receiving, 0, link), np.where(receiving, done, moving)
    ordinal, repeats = _ordinals(program)
    sequence = number * repeats[template] + ordinal[template]
    order = np.lexsort((arrival, number))
    columns = (
        number + FIRST_STEP,
        template,
        sequence,
        arrival + shift,
        done - arrival,
        link,
        done - arrival - link,
        moving - arrival,
    )
    return CommOpColumns(*(column[order] for column in columns))


def _receives(program: StageProgram) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([message.op == "receive" for message in program.messages], dtype=np.bool_)


def _ordinals(program: StageProgram) -> tuple[Ints, Ints]:
    """Index of each message among those of its kind (communicator, op), and their number per step."""
    seen: dict[tuple[str, str], int] = {}
    ordinal = []
    for message in program.messages:
        kind = (message.axis, message.op)
        ordinal.append(seen.get(kind, 0))
        seen[kind] = ordinal[-1] + 1
    repeats = [seen[(message.axis, message.op)] for message in program.messages]
    return np.array(ordinal, dtype=np.int64), np.array(repeats, dtype=np.int64)


def _steps(
    program: StageProgram, times: StageTimes, column: int, shift: int, kernels: KernelColumns, comm_ops: CommOpColumns
) -> StepColumns:
    count = times.begin.shape[0]
    receives = _receives(program)
    rows = []
    for number in range(FIRST_STEP, FIRST_STEP + count):
        mine, ops = kernels.of(number), comm_ops.of(number)
        computing, communicating = union(mine.start, mine.duration), union(ops.start, ops.duration)
        bubble = ops.duration[receives[ops.template]].sum() if len(ops.template) else 0
        last = _last_backward(program)
        first = min(int(mine.start[0]), int(ops.start[0]) if len(ops.start) else int(mine.start[0]))
        rows.append(
            (
                mine.start[last] + mine.duration[last],
                computing.length,
                communicating.length,
                (computing & communicating).length,
                bubble,
                first,
            )
        )
    measured = np.array(rows, dtype=np.int64).T
    begin, end, ready = (getattr(times, name)[:, column] + shift for name in ("begin", "end", "ready"))
    return StepColumns(np.arange(count) + FIRST_STEP, begin, end, ready, *measured)


def _last_backward(program: StageProgram) -> int:
    """Position of the last backward kernel."""
    return int(np.flatnonzero(program.backward)[-1])
