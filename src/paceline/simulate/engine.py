"""Runs the cluster: who arrives when, who waits for whom, when every step ends.

The ranks of a stage run the same program, so their clocks move as one vector of length dp · tp (tp fastest).
A stage runs until it needs something another stage has not done yet; then the next stage gets its turn.

    blocking collective   end = max(arrivals of the group) + max(link times of its ring)
    send and receive      end = max(both arrivals) + link time of the sender
    gradient bucket       as a collective, on a stream of its own; the next bucket arrives when it is done
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.errors import PacelineError
from paceline.simulate.cluster import Cluster, Floats, Ints, ticks
from paceline.simulate.conditions import Conditions
from paceline.simulate.links import TRANSPORTS, packets, wire_time
from paceline.simulate.program import Message, StageProgram, stage_program
from paceline.simulate.work import LINKS, STARTS, rank_work

END_JITTER = 200  # ticks: a collective ends within 2 µs on all its ranks


@dataclass(frozen=True)
class StageTimes:
    """True times (ns since the start of the run) of one stage: [step, …, rank of the stage]."""

    begin: Ints  # [step, rank]
    ready: Ints  # [step, rank]: the batch is there
    end: Ints  # [step, rank]
    segments: Ints  # [step, segment, rank]: start
    arrival: Ints  # [step, message, rank]
    moving: Ints  # [step, message, rank]: first byte
    link: Ints  # [step, message, rank]: time on this rank's own link
    done: Ints  # [step, message, rank]


@dataclass(frozen=True)
class Timeline:
    """The whole run as it truly was."""

    cluster: Cluster
    conditions: Conditions
    programs: tuple[StageProgram, ...]
    stages: tuple[StageTimes, ...]

    def step_times(self) -> Ints:
        """Per step, the longest over the ranks."""
        spans = [(stage.end - stage.begin).max(axis=1) for stage in self.stages]
        longest: Ints = np.max(spans, axis=0)
        return longest


def run(cluster: Cluster, conditions: Conditions) -> Timeline:
    spec = cluster.spec
    programs = tuple(stage_program(spec, conditions.model, stage) for stage in range(spec.pp))
    stages = tuple(_empty(program, spec.steps, spec.stage_size) for program in programs)
    clocks = [_first_starts(cluster, stage) for stage in range(spec.pp)]
    for step in range(spec.steps):
        running = [_Stage(cluster, conditions, program, stages[program.stage], step) for program in programs]
        for stage, clock in zip(running, clocks, strict=True):
            stage.start(clock)
        _run_step(running)
        clocks = [stage.clock for stage in running]
    return Timeline(cluster, conditions, programs, stages)


def _run_step(stages: list[_Stage]) -> None:
    while not all(stage.finished for stage in stages):
        moved = [stage.advance(stages) for stage in stages]
        if not any(moved):
            raise PacelineError("the simulated schedule is deadlocked: this is a defect of the simulator")
    for stage in stages:
        stage.finish()


def _first_starts(cluster: Cluster, stage: int) -> Ints:
    random = np.random.default_rng((cluster.spec.seed, STARTS, stage))
    return random.integers(0, 2_000, cluster.spec.stage_size) * 10


def _empty(program: StageProgram, steps: int, ranks: int) -> StageTimes:
    def plain() -> Ints:
        return np.zeros((steps, ranks), dtype=np.int64)

    def by(count: int) -> Ints:
        return np.zeros((steps, count, ranks), dtype=np.int64)

    talks = len(program.messages)
    return StageTimes(plain(), plain(), plain(), by(program.segments), by(talks), by(talks), by(talks), by(talks))


class _Stage:
    """One stage in one step."""

    def __init__(
        self, cluster: Cluster, conditions: Conditions, program: StageProgram, times: StageTimes, step: int
    ) -> None:
        self.cluster, self.conditions, self.program, self.times, self.step = cluster, conditions, program, times, step
        spec = cluster.spec
        first = program.stage * spec.stage_size
        work = [rank_work(cluster, conditions, program, first + j, step) for j in range(spec.stage_size)]
        self.segment_times = np.stack([one.segment_times(program) for one in work], axis=1)
        self.input_wait = np.array([one.input_wait for one in work], dtype=np.int64)
        self.message_gap = np.array([one.message_gap for one in work], dtype=np.int64)
        self.jitter = self._draw_links()
        self.position = 0
        self.buckets: list[int] = []
        self.sent: dict[str, list[int]] = {"next": [], "previous": []}  # messages in order
        self.received = {"next": 0, "previous": 0}
        self.met: Ints | None = None  # arrival at the mp collective

    def _draw_links(self) -> Ints:
        """Link times of all messages of this step; returns when each rank notices the end (jitter)."""
        spec, program = self.cluster.spec, self.program
        random = np.random.default_rng((spec.seed, LINKS, program.stage, self.step))
        shape = (len(program.messages), spec.stage_size)
        noise = 1.0 + spec.noise * random.standard_normal(shape)
        self.times.link[self.step] = ticks(nominal_links(self.cluster, self.conditions, program) * noise)
        return random.integers(0, END_JITTER, shape) * 10

    @property
    def finished(self) -> bool:
        return self.position == len(self.program.instructions)

    def start(self, clock: Ints) -> None:
        self.times.begin[self.step] = clock
        self.clock = clock + self.input_wait
        self.times.ready[self.step] = self.clock

    def finish(self) -> None:
        self.times.end[self.step] = self.clock

    def advance(self, stages: list[_Stage]) -> bool:
        """Runs until something is missing; tells whether anything was done."""
        before = self.position
        while not self.finished and self._execute(stages):
            self.position += 1
        return self.position > before

    def _execute(self, stages: list[_Stage]) -> bool:
        instruction = self.program.instructions[self.position]
        index = instruction.index
        match instruction.kind:
            case "compute":
                self.times.segments[self.step, index] = self.clock
                self.clock = self.clock + self.segment_times[index]
            case "meet" if self.program.messages[index].axis == "mp":
                return self._meet_replica(index, stages)
            case "meet":
                self.clock = self._meet(index, self.clock + self.message_gap)
            case "launch":
                self.clock = self.clock + self.message_gap
                self.times.arrival[self.step, index] = self.clock
                self.buckets.append(index)
            case "send":
                self.clock = self.clock + self.message_gap
                self.times.arrival[self.step, index] = self.clock
                self.sent[self.program.messages[index].axis].append(index)
            case "receive":
                return self._receive(index, stages)
            case "join":
                return self._join(stages)
        return True

    def _meet(self, index: int, arrival: Ints, transfer: Ints | None = None) -> Ints:
        """A collective along tp or dp; returns when each rank leaves it."""
        axis = self.program.messages[index].axis
        last = self._group_max(arrival, axis)
        longest = self._group_max(self.times.link[self.step, index], axis) if transfer is None else transfer
        return self._record(index, arrival, last, last + longest + self.jitter[index])

    def _record(self, index: int, arrival: Ints, moving: Ints, done: Ints) -> Ints:
        self.times.arrival[self.step, index] = arrival
        self.times.moving[self.step, index] = moving
        self.times.done[self.step, index] = done
        return done

    def _group_max(self, values: Ints, axis: str) -> Ints:
        spec = self.cluster.spec
        square = values.reshape(spec.dp, spec.tp)
        most = square.max(axis=1 if axis == "tp" else 0, keepdims=True)
        return np.broadcast_to(most, square.shape).reshape(-1)

    def _meet_replica(self, index: int, stages: list[_Stage]) -> bool:
        """The gradient norm: all tp · pp ranks of a replica, so it needs every stage."""
        if self.met is None:
            self.met = self.clock + self.message_gap
            self.times.arrival[self.step, index] = self.met
        arrivals = [stage.met for stage in stages if stage.met is not None]
        if len(arrivals) < len(stages):
            return False
        links = [stage.times.link[self.step, _replica_message(stage.program)] for stage in stages]
        last = self._group_max(np.max(arrivals, axis=0), "tp")
        longest = self._group_max(np.max(links, axis=0), "tp")
        self.clock = self._record(index, self.met, last, last + longest + self.jitter[index])
        return True

    def _receive(self, index: int, stages: list[_Stage]) -> bool:
        axis = self.program.messages[index].axis
        back, sender = ("previous", stages[self.program.stage + 1]) if axis == "next" else (
            "next", stages[self.program.stage - 1])  # fmt: skip
        number = self.received[axis]
        if len(sender.sent[back]) <= number:
            return False
        sent = sender.sent[back][number]
        self.received[axis] += 1
        self._hand_over(index, sender, sent, sender.sent[back][number - 1] if number else None)
        return True

    def _hand_over(self, index: int, sender: _Stage, sent: int, before: int | None) -> None:
        """Both sides leave together; a link carries one message after the other."""
        posted = sender.times.arrival[self.step, sent]
        if before is not None:
            posted = np.maximum(posted, sender.times.done[self.step, before])
        arrival = self.clock + self.message_gap
        moving = np.maximum(posted, arrival)
        link = sender.times.link[self.step, sent]
        self.times.link[self.step, index] = link
        sender._record(sent, posted, moving, moving + link + sender.jitter[sent])
        self.clock = self._record(index, arrival, moving, moving + link + self.jitter[index])

    def _join(self, stages: list[_Stage]) -> bool:
        """Waits until every send was taken and every gradient bucket is summed."""
        for axis, back, neighbour in (("next", "previous", 1), ("previous", "next", -1)):
            sent = self.sent[axis]
            if sent and stages[self.program.stage + neighbour].received[back] < len(sent):
                return False
            for index in sent[-1:]:
                self.clock = np.maximum(self.clock, self.times.done[self.step, index])
        self._sum_gradients()
        return True

    def _sum_gradients(self) -> None:
        computed = self.clock
        done = np.zeros_like(computed)
        for index in self.buckets:
            launched = self.times.arrival[self.step, index] if self.conditions.overlap else computed
            arrival = np.maximum(launched, done)
            done = self._meet(index, arrival, self._contended(index, arrival, computed))
        self.clock = np.maximum(computed, done)

    def _contended(self, index: int, arrival: Ints, computed: Ints) -> Ints | None:
        """While the ranks still compute, a transfer moves at 1 / contention of its speed.

        With c ns of computing left and a transfer that alone takes w:  w · f if that fits into c, else w + c (1 − 1/f).
        """
        factor = self.conditions.contention
        if factor == 1.0:
            return None
        left = np.maximum(self._group_max(computed, "dp") - self._group_max(arrival, "dp"), 0)
        alone = self.times.link[self.step, index]
        slowed = np.where(alone * factor <= left, alone * factor, alone + left * (1.0 - 1.0 / factor))
        self.times.link[self.step, index] = ticks(slowed)
        return self._group_max(self.times.link[self.step, index], "dp")


def _replica_message(program: StageProgram) -> int:
    return next(number for number, message in enumerate(program.messages) if message.axis == "mp")


def nominal_links(cluster: Cluster, conditions: Conditions, program: StageProgram) -> Floats:
    """Time of each message on each rank's own link, before noise: [message, rank of the stage]."""
    spec = cluster.spec
    first = program.stage * spec.stage_size
    table = np.zeros((len(program.messages), spec.stage_size))
    known: dict[Message, Floats] = {}
    for number, message in enumerate(program.messages):
        if message not in known:
            known[message] = np.array(
                [_link_time(cluster, conditions, message, first + j) for j in range(spec.stage_size)]
            )
        table[number] = known[message]
    return table


def _link_time(cluster: Cluster, conditions: Conditions, message: Message, rank: int) -> float:
    group = cluster.group(message.axis, rank)
    target = group.following(rank)
    transport = TRANSPORTS[cluster.transport(rank, target)]
    largest = min(conditions.largest_packet or transport.packet, transport.packet)
    packed = packets(message, len(group.ranks), largest)
    return wire_time(packed, transport, conditions.links.get((rank, target), 1.0))
