"""A cluster simulator that shares nothing with paceline.simulate: other physics, other habits of writing.

Ranks are small programs that run until they block; a collective ends on all its members when the last has come and its
time has passed; messages are collectives of two, and in the steady part of 1F1B both stages exchange in one call. Or, with
`buffered`, a send ends at once and the receive when the message has arrived. Tensor × data × pipeline parallel (Megatron's
order) or data parallel only, serial communication, 1 % Gaussian noise, one kernel between two collectives. Written as a
torch (Kineto) trace or as an Ascend database.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

EPOCH_US = 1_750_000_000_000_000.0


@dataclass(frozen=True)
class Scenario:
    """µs; `factor[rank]` or `factor[rank, step]` makes computing slower, `link[group]` a group's transfers."""

    tensor: int = 2
    data: int = 4
    pipeline: int = 2
    steps: int = 6
    micro_batches: int = 4
    layers: int = 3
    factor: dict[int | tuple[int, int], float] = field(default_factory=dict)
    link: dict[str, float] = field(default_factory=dict)
    skew: dict[int, float] = field(default_factory=dict)
    """µs that the clock of a host of eight is ahead."""
    buffered: float | None = None
    """µs that a send takes which waits for nobody; None = both sides of a message wait for each other."""
    seed: int = 1

    @property
    def world(self) -> int:
        return self.tensor * self.data * self.pipeline

    def place(self, rank: int) -> tuple[int, int, int]:
        """Tensor, data and pipeline index."""
        rest, t = divmod(rank, self.tensor)
        p, d = divmod(rest, self.data)
        return t, d, p

    def rank(self, t: int, d: int, p: int) -> int:
        return (p * self.data + d) * self.tensor + t


@dataclass
class Span:
    name: str
    group: str | None
    step: int
    start: float
    end: float
    turn: int = 0
    bytes: int = 0


@dataclass
class Recording:
    scenario: Scenario
    spans: dict[int, list[Span]]
    steps: dict[int, list[tuple[float, float]]]
    groups: dict[str, list[int]]

    @property
    def step_time(self) -> float:
        """Median over steps of the mean over ranks, ms."""
        lengths = [[end - start for start, end in self.steps[rank]] for rank in self.steps]
        return float(np.median(np.mean(lengths, axis=0))) / 1e3


def run(scenario: Scenario) -> Recording:
    noise = np.random.default_rng(scenario.seed)
    groups = _groups(scenario)
    programs = {rank: _program(scenario, rank) for rank in range(scenario.world)}
    clock = dict.fromkeys(programs, 0.0)
    place = dict.fromkeys(programs, 0)
    waiting: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    turns: dict[tuple[int, str, str], int] = defaultdict(int)
    spans: dict[int, list[Span]] = defaultdict(list)
    steps: dict[int, list[tuple[float, float]]] = defaultdict(list)
    begun = dict.fromkeys(programs, 0.0)
    arrives: dict[tuple[str, int, int], float] = {}
    posted: set[tuple[int, int]] = set()
    moving = True
    while moving:
        moving = False
        for rank, program in programs.items():
            while place[rank] < len(program):
                kind, name, group, cost, size, step = program[place[rank]]
                if kind == "compute":
                    slow = scenario.factor.get(rank, 1.0) * scenario.factor.get((rank, step), 1.0)
                    took = cost * slow * noise.normal(1, 0.01)
                    spans[rank].append(Span(name, None, step, clock[rank] + 2, clock[rank] + 2 + took))
                    clock[rank] += took + 4
                elif kind == "end":
                    steps[rank].append((begun[rank], clock[rank]))
                    begun[rank] = clock[rank]
                elif scenario.buffered is not None and name.startswith("p2p"):
                    assert group is not None
                    spoken = _spoken(name, groups[group][0] == rank)
                    if "send" in spoken and (rank, place[rank]) not in posted:
                        posted.add((rank, place[rank]))
                        turn = turns[rank, group, "send"]
                        turns[rank, group, "send"] += 1
                        took = cost * scenario.link.get(group, 1.0) * noise.normal(1, 0.01)
                        arrives[group, rank, turn] = clock[rank] + took
                        done = clock[rank] + scenario.buffered
                        spans[rank].append(Span("send", group, step, clock[rank], done, turn, size))
                        clock[rank] = done
                    if "recv" in spoken:
                        turn = turns[rank, group, "recv"]
                        other = next(member for member in groups[group] if member != rank)
                        if (group, other, turn) not in arrives:
                            break
                        turns[rank, group, "recv"] += 1
                        end = max(arrives[group, other, turn], clock[rank] + 3)
                        spans[rank].append(Span("recv", group, step, clock[rank], end, turn, size))
                        clock[rank] = end
                else:
                    assert group is not None
                    key = (group, turns[rank, group, "met"])
                    arrivals = waiting[key]
                    arrivals.setdefault(rank, clock[rank])
                    if len(arrivals) < len(groups[group]):
                        break
                    took = cost * scenario.link.get(group, 1.0) * (1 + 0.01 * np.sin(key[1]))
                    end = max(arrivals.values()) + took + noise.uniform(0, 1.5)
                    for spoken in _spoken(name, groups[group][0] == rank):
                        turn = turns[rank, group, spoken]
                        turns[rank, group, spoken] += 1
                        spans[rank].append(Span(spoken, group, step, arrivals[rank], end, turn, size))
                    turns[rank, group, "met"] += 1
                    clock[rank] = end
                place[rank] += 1
                moving = True
    assert all(place[rank] == len(programs[rank]) for rank in programs), "the programs block each other"
    return Recording(scenario, spans, steps, groups)


def _spoken(name: str, first: bool) -> tuple[str, ...]:
    """What a member of a pair does in a message from the first to the second (up), back (down), or in both at once."""
    if not name.startswith("p2p"):
        return (name,)
    sends = {"p2p-up": first, "p2p-down": not first}
    return ("send", "recv") if name == "p2p-both" else ("send",) if sends[name] else ("recv",)


def _groups(scenario: Scenario) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for rank in range(scenario.world):
        t, d, p = scenario.place(rank)
        groups[f"tp_d{d}p{p}"].append(rank)
        groups[f"dp_t{t}p{p}"].append(rank)
        groups[f"pp_t{t}d{d}"].append(rank)
    return {name: ranks for name, ranks in groups.items() if len(ranks) > 1}


Instruction = tuple[str, str, str | None, float, int, int]


def _program(scenario: Scenario, rank: int) -> list[Instruction]:
    """1F1B over all steps; each layer is two kernels, each followed by a sum over the tensor-parallel ranks."""
    t, d, p = scenario.place(rank)
    program: list[Instruction] = []

    def layers(name: str, cost: float, step: int) -> None:
        for _ in range(2 * scenario.layers):
            program.append(("compute", name, None, cost, 0, step))
            if scenario.tensor > 1:
                program.append(("talk", "allreduce", f"tp_d{d}p{p}", 60.0, 8 << 20, step))

    def message(name: str, step: int) -> None:
        program.append(("talk", name, f"pp_t{t}d{d}", 90.0, 4 << 20, step))

    def stage(step: int) -> None:
        """Two stages at most: the first is one micro-batch ahead."""
        first, piped = p == 0, scenario.pipeline > 1
        if piped and first:
            layers("gemm_fwd", 230.0, step)
        if piped:
            message("p2p-up", step)
        for batch in range(scenario.micro_batches):
            ahead = piped and first
            if not ahead or batch + 1 < scenario.micro_batches:
                layers("gemm_fwd", 230.0, step)
            if ahead:
                message("p2p-both" if batch + 1 < scenario.micro_batches else "p2p-down", step)
            layers("gemm_bwd", 460.0, step)
            if piped and not first:
                message("p2p-both" if batch + 1 < scenario.micro_batches else "p2p-down", step)

    for step in range(scenario.steps):
        stage(step)
        if scenario.data > 1:
            program.append(("talk", "allreduce", f"dp_t{t}p{p}", 1800.0, 400 << 20, step))
        program.append(("compute", "adam", None, 700.0, 0, step))
        program.append(("end", "", None, 0.0, 0, step))
    return program


def _ahead(scenario: Scenario, rank: int) -> float:
    return EPOCH_US + scenario.skew.get(rank // 8, 0.0)


def write_kineto(recording: Recording, directory: Path) -> Path:
    """One trace a rank; groups declared, NCCL's kernel names, no sequence numbers, no host names."""
    directory.mkdir(parents=True)
    numbers = {name: str(index) for index, name in enumerate(sorted(recording.groups))}
    for rank, spans in recording.spans.items():
        ahead = _ahead(recording.scenario, rank)
        mine = [name for name, ranks in recording.groups.items() if rank in ranks]
        events: list[dict[str, object]] = [
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{step}",
                "pid": 1,
                "tid": 1,
                "ts": round(start + ahead, 3),
                "dur": round(end - start, 3),
            }
            for step, (start, end) in enumerate(recording.steps[rank])
        ]
        for span in spans:
            event: dict[str, object] = {
                "ph": "X",
                "cat": "kernel",
                "name": span.name,
                "pid": 0,
                "tid": 7 if span.group is None else 20,
                "ts": round(span.start + ahead, 3),
                "dur": round(span.end - span.start, 3),
                "args": {"device": rank % 8, "stream": 7 if span.group is None else 20},
            }
            if span.group is not None:
                ranks = recording.groups[span.group]
                kernel = "SendRecv" if span.name in ("send", "recv") else "AllReduce_Sum_bf16_RING_LL"
                event["name"] = f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)"
                other = next(member for member in ranks if member != rank)
                event["args"] = {
                    "Collective name": span.name,
                    "In msg nelems": span.bytes // 2,
                    "Out msg nelems": span.bytes // 2,
                    "dtype": "BFloat16",
                    "Group size": len(ranks),
                    "Process Group Name": numbers[span.group],
                    "Process Group Ranks": str(ranks),
                    **({"Src Rank": rank, "Dst Rank": other} if span.name == "send" else {}),
                    **({"Src Rank": other, "Dst Rank": rank} if span.name == "recv" else {}),
                }
            events.append(event)
        declared = [
            {
                "pg_name": numbers[name],
                "pg_desc": name.split("_")[0],
                "backend_config": "cuda:nccl",
                "pg_size": len(recording.groups[name]),
                "ranks": recording.groups[name],
            }
            for name in mine
        ]
        head = {"backend": "nccl", "rank": rank, "world_size": recording.scenario.world, "pg_config": declared}
        trace = {"schemaVersion": 1, "distributedInfo": head, "traceEvents": events}
        (directory / f"rank{rank}.pt.trace.json").write_text(json.dumps(trace))
    return directory


def write_ascend_db(recording: Recording, directory: Path) -> Path:
    """One database a rank: tasks, communication operators and steps; nobody declares groups, stages or links."""
    names = sorted(recording.groups)
    for rank, spans in recording.spans.items():
        folder = directory / f"rank{rank}_20250615000000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        folder.mkdir(parents=True)
        ahead = _ahead(recording.scenario, rank)

        def ns(moment: float, ahead: float = ahead) -> int:
            return round((moment + ahead) * 1000)

        texts: dict[str, int] = {}
        tasks, computing, communication = [], [], []
        for number, span in enumerate(spans):
            start, end = ns(span.start), ns(span.end)
            if span.group is None:
                name = texts.setdefault(span.name, len(texts))
                core = texts.setdefault("AI_CORE", len(texts))
                tasks.append((start, end, rank % 8, number, number, 2, number))
                computing.append((name, number, name, core))
                continue
            op = {"allreduce": "hcom_allReduce_", "send": "hcom_send_", "recv": "hcom_receive_"}[span.name]
            short = 600 + names.index(span.group)
            op_name = texts.setdefault(f"{op}_{short}_{span.turn}_1", len(texts))
            group = texts.setdefault(f"{90_000_000_000_000_000_000 + short}", len(texts))
            communication.append((op_name, start, end, number, group, number, 0))
        with sqlite3.connect(folder / f"ascend_pytorch_profiler_{rank}.db") as database:
            database.executescript(
                """
                CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
                CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER,
                                   globalTaskId INTEGER, streamId INTEGER, taskId INTEGER);
                CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER, opType INTEGER, taskType INTEGER);
                CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER,
                                               groupName INTEGER, opId INTEGER, relay INTEGER);
                CREATE TABLE STEP_TIME (id INTEGER, startNs INTEGER, endNs INTEGER);
                CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId INTEGER);
                CREATE TABLE HOST_INFO (hostUid TEXT, hostName TEXT);
                """
            )
            database.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", [(i, text) for text, i in texts.items()])
            database.executemany("INSERT INTO TASK VALUES (?, ?, ?, ?, ?, ?, ?)", tasks)
            database.executemany("INSERT INTO COMPUTE_TASK_INFO VALUES (?, ?, ?, ?)", computing)
            database.executemany("INSERT INTO COMMUNICATION_OP VALUES (?, ?, ?, ?, ?, ?, ?)", communication)
            steps = [(step, ns(start), ns(end)) for step, (start, end) in enumerate(recording.steps[rank])]
            database.executemany("INSERT INTO STEP_TIME VALUES (?, ?, ?)", steps)
            database.execute("INSERT INTO RANK_DEVICE_MAP VALUES (?, ?)", (rank, rank % 8))
            database.execute("INSERT INTO HOST_INFO VALUES (?, ?)", (f"uid{rank // 8}", f"machine-{rank // 8}"))
        database.close()
    return directory
