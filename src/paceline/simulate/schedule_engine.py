"""Simulate the schedule: arrival, waiting and end of every operation on every rank.

The ranks of a stage run the same program, so their clocks are one vector of length dp · tp (tp fastest). A stage runs
until it needs something that another stage has not done yet; then the next stage runs.

    blocking collective   end = max(arrivals of the group) + max(link times of its ring)
    send and receive      end = max(both arrivals) + link time of the sender
    gradient bucket       as a collective, on a separate stream; the next bucket arrives when it has finished
    buffered send         end = start + link time of the sender; its receive ends when it has arrived
    sharded weights       as a gradient bucket; a layer starts when its weights are there
    all_to_all            each rank's link carries what its experts get
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.core.errors import PacelineError
from paceline.simulate.cluster import Cluster, Floats, Ints, ticks
from paceline.simulate.cluster_state import ClusterState
from paceline.simulate.compute_times import LINKS, STARTS, noise_spread, rank_compute_times
from paceline.simulate.links import TRANSPORTS, packets, transfer_time
from paceline.simulate.program import Message, StageProgram, stage_program

END_JITTER = 200  # ticks: a collective ends within 2 µs on all its ranks


@dataclass(frozen=True)
class StageTimes:
    """True times (ns since the start of the run) of one stage: [step, …, rank of the stage]."""

    begin: Ints  # [step, rank]
    ready: Ints  # [step, rank]: the batch is loaded
    end: Ints  # [step, rank]
    segments: Ints  # [step, segment, rank]: start
    arrival: Ints  # [step, message, rank]
    moving: Ints  # [step, message, rank]: first byte
    link: Ints  # [step, message, rank]: time on this rank's own link
    done: Ints  # [step, message, rank]


@dataclass(frozen=True)
class SimulatedTimeline:
    """The whole run in true time."""

    cluster: Cluster
    state: ClusterState
    programs: tuple[StageProgram, ...]
    stages: tuple[StageTimes, ...]

    def step_times(self) -> Ints:
        """Per step, the longest over the ranks."""
        spans = [(stage.end - stage.begin).max(axis=1) for stage in self.stages]
        longest: Ints = np.max(spans, axis=0)
        return longest


def run_schedule(cluster: Cluster, state: ClusterState) -> SimulatedTimeline:
    spec = cluster.spec
    programs = tuple(stage_program(spec, state.model, stage) for stage in range(spec.pp))
    stages = tuple(_empty(program, spec.steps, spec.stage_size) for program in programs)
    clocks = [_first_starts(cluster, stage) for stage in range(spec.pp)]
    for step in range(spec.steps):
        running = [_Stage(cluster, state, program, stages[program.stage], step) for program in programs]
        for stage, clock in zip(running, clocks, strict=True):
            stage.start(clock)
        _run_step(running)
        clocks = [stage.clock for stage in running]
    return SimulatedTimeline(cluster, state, programs, stages)


def _run_step(stages: list[_Stage]) -> None:
    while not all(stage.finished for stage in stages):
        moved = [stage.advance(stages) for stage in stages]
        if not any(moved):
            raise PacelineError("the simulated schedule is deadlocked; please report this bug of the simulator")
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

    comm_ops = len(program.messages)
    return StageTimes(
        plain(), plain(), plain(), by(program.segments), by(comm_ops), by(comm_ops), by(comm_ops), by(comm_ops)
    )


class _Stage:
    """One stage in one step."""

    def __init__(
        self, cluster: Cluster, state: ClusterState, program: StageProgram, times: StageTimes, step: int
    ) -> None:
        self.cluster, self.state, self.program, self.times, self.step = cluster, state, program, times, step
        spec = cluster.spec
        first = program.stage * spec.stage_size
        work = [rank_compute_times(cluster, state, program, first + j, step) for j in range(spec.stage_size)]
        self.segment_times = np.stack([one.segment_times(program) for one in work], axis=1)
        self.input_wait = np.array([one.input_wait for one in work], dtype=np.int64)
        self.message_gap = np.array([one.message_gap for one in work], dtype=np.int64)
        self.jitter = self._draw_links()
        self.position = 0
        self.buckets: list[int] = []
        self.sent: dict[str, list[int]] = {"next": [], "previous": []}  # messages in order
        self.received = {"next": 0, "previous": 0}
        self.replica_arrival: Ints | None = None  # arrival at the mp collective
        self.weights_free = np.zeros(spec.stage_size, dtype=np.int64)  # the stream of the sharded weights is free again

    def _draw_links(self) -> Ints:
        """Draw the link times of all messages of this step; returns the jitter of their ends on each rank."""
        spec, program = self.cluster.spec, self.program
        random = np.random.default_rng((spec.seed, LINKS, program.stage, self.step))
        shape = (len(program.messages), spec.stage_size)
        noise = np.maximum(1.0 + spec.noise * noise_spread(self.cluster, random, shape), 0.5)
        nominal = nominal_links(self.cluster, self.state, program) * self._routed_tokens()
        self.times.link[self.step] = ticks(nominal * noise)
        return random.integers(0, END_JITTER, shape) * 10

    def _routed_tokens(self) -> Floats:
        """What each rank's experts get in an all_to_all, relative to an even share: [message, rank of the stage]."""
        first, size = self.program.stage * self.cluster.spec.stage_size, self.cluster.spec.stage_size
        load = self.state.expert_load[first : first + size, self.step]
        routed = np.array([message.op == "all_to_all" for message in self.program.messages], dtype=np.bool_)
        return np.where(routed[:, None], load[None, :], 1.0)

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
        """Run until another stage has to go first; returns whether anything was executed."""
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
            case "collective" if self.program.messages[index].axis == "mp":
                return self._replica_collective(index, stages)
            case "collective":
                self.clock = self._collective(index, self.clock + self.message_gap)
            case "launch":
                self.clock = self.clock + self.message_gap
                self.times.arrival[self.step, index] = self.clock
                self.buckets.append(index)
            case "prefetch":
                self._prefetch(index)
            case "need":
                self.clock = np.maximum(self.clock, self.times.done[self.step, index])
            case "send":
                self.clock = self.clock + self.message_gap
                self.times.arrival[self.step, index] = self.clock
                self.sent[self.program.messages[index].axis].append(index)
            case "receive":
                return self._receive(index, stages)
            case "join":
                return self._join(stages)
        return True

    def _collective(self, index: int, arrival: Ints, transfer: Ints | None = None) -> Ints:
        """A collective along tp or dp; returns its end on each rank."""
        axis = self.program.messages[index].axis
        last = self._group_max(arrival, axis)
        longest = self._group_max(self.times.link[self.step, index], axis) if transfer is None else transfer
        return self._record(index, arrival, last, last + longest + self.jitter[index])

    def _prefetch(self, index: int) -> None:
        self.clock = self.clock + self.message_gap
        self.weights_free = self._collective(index, np.maximum(self.clock, self.weights_free))

    def _record(self, index: int, arrival: Ints, moving: Ints, done: Ints) -> Ints:
        self.times.arrival[self.step, index] = arrival
        self.times.moving[self.step, index] = moving
        self.times.done[self.step, index] = done
        return done

    def _group_max(self, values: Ints, axis: str) -> Ints:
        spec = self.cluster.spec
        experts = spec.experts if axis == "ep" else spec.dp
        cube = values.reshape(spec.dp // experts, experts, spec.tp)
        most = cube.max(axis=2 if axis == "tp" else 1, keepdims=True)
        return np.broadcast_to(most, cube.shape).reshape(-1)

    def _replica_collective(self, index: int, stages: list[_Stage]) -> bool:
        """The all-reduce of the gradient norm over all tp · pp ranks of a replica, so it needs every stage."""
        if self.replica_arrival is None:
            self.replica_arrival = self.clock + self.message_gap
            self.times.arrival[self.step, index] = self.replica_arrival
        arrivals = [stage.replica_arrival for stage in stages if stage.replica_arrival is not None]
        if len(arrivals) < len(stages):
            return False
        links = [stage.times.link[self.step, _replica_message(stage.program)] for stage in stages]
        last = self._group_max(np.max(arrivals, axis=0), "tp")
        longest = self._group_max(np.max(links, axis=0), "tp")
        self.clock = self._record(index, self.replica_arrival, last, last + longest + self.jitter[index])
        return True

    def _receive(self, index: int, stages: list[_Stage]) -> bool:
        axis = self.program.messages[index].axis
        back, sender = (
            ("previous", stages[(self.program.stage + 1) % len(stages)])
            if axis == "next"
            else ("next", stages[self.program.stage - 1])
        )
        number = self.received[axis]
        if len(sender.sent[back]) <= number:
            return False
        sent = sender.sent[back][number]
        self.received[axis] += 1
        self._transfer(index, sender, sent, sender.sent[back][number - 1] if number else None)
        return True

    def _transfer(self, index: int, sender: _Stage, sent: int, before: int | None) -> None:
        """Send and receive end together; a link carries one message at a time."""
        posted = sender.times.arrival[self.step, sent]
        if before is not None:
            posted = np.maximum(posted, sender.times.done[self.step, before])
        arrival = self.clock + self.message_gap
        moving = posted if self.cluster.spec.buffered_sends else np.maximum(posted, arrival)
        link = sender.times.link[self.step, sent]
        self.times.link[self.step, index] = link
        sender._record(sent, posted, moving, moving + link + sender.jitter[sent])
        self.clock = self._record(index, arrival, moving, np.maximum(arrival, moving + link) + self.jitter[index])

    def _join(self, stages: list[_Stage]) -> bool:
        """Wait until every send was received and every gradient bucket is reduced."""
        for axis, back, neighbour in (("next", "previous", 1), ("previous", "next", -1)):
            sent = self.sent[axis]
            if sent and stages[(self.program.stage + neighbour) % len(stages)].received[back] < len(sent):
                return False
            for index in sent[-1:]:
                self.clock = np.maximum(self.clock, self.times.done[self.step, index])
        self._reduce_gradients()
        self.clock = np.maximum(self.clock, self.weights_free)
        return True

    def _reduce_gradients(self) -> None:
        computed = self.clock
        done = np.zeros_like(computed)
        for index in self.buckets:
            launched = self.times.arrival[self.step, index] if self.state.overlap else computed
            arrival = np.maximum(launched, done)
            done = self._collective(index, arrival, self._contended(index, arrival, computed))
        self.clock = np.maximum(computed, done)

    def _contended(self, index: int, arrival: Ints, computed: Ints) -> Ints | None:
        """While the ranks still compute, a transfer has 1 / contention of its speed.

        With c ns of computing left and a transfer that takes w alone:  w · f if that is at most c, else w + c (1 − 1/f).
        """
        factor = self.state.contention
        if factor == 1.0:
            return None
        left = np.maximum(self._group_max(computed, "dp") - self._group_max(arrival, "dp"), 0)
        alone = self.times.link[self.step, index]
        slowed = np.where(alone * factor <= left, alone * factor, alone + left * (1.0 - 1.0 / factor))
        self.times.link[self.step, index] = ticks(slowed)
        return self._group_max(self.times.link[self.step, index], "dp")


def _replica_message(program: StageProgram) -> int:
    return next(number for number, message in enumerate(program.messages) if message.axis == "mp")


def nominal_links(cluster: Cluster, state: ClusterState, program: StageProgram) -> Floats:
    """Time of each message on each rank's own link, before noise: [message, rank of the stage]."""
    spec = cluster.spec
    first = program.stage * spec.stage_size
    table = np.zeros((len(program.messages), spec.stage_size))
    known: dict[Message, Floats] = {}
    for number, message in enumerate(program.messages):
        if message not in known:
            known[message] = np.array([_link_time(cluster, state, message, first + j) for j in range(spec.stage_size)])
        table[number] = known[message]
    return table


def _link_time(cluster: Cluster, state: ClusterState, message: Message, rank: int) -> float:
    group = cluster.group(message.axis, rank)
    target = group.following(rank)
    transport = TRANSPORTS[cluster.transport(rank, target)]
    largest = min(state.largest_packet or transport.packet, transport.packet)
    packed = packets(message, len(group.ranks), largest)
    shared = cluster.spec.cards_per_nic if transport.name == "RDMA" else 1
    return transfer_time(packed, transport, state.links.get((rank, target), 1.0) * shared)
