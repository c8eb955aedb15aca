"""Torch traces of a mixture of experts on NCCL, made without our simulator: dispatch, grouped product, combine, layer by layer.

Time is in µs. A rank's kernels run one after the other, the host is ahead; the members of a collective leave it together.
Tokens show in the shapes that torch records with the operator, the time of the grouped product is in proportion to them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANKS, LAYERS, STEPS = 8, 6, 5
TOKENS, WIDTH = 4096, 2048
ATTENTION, PER_TOKEN, MOVE, SUM = 2200.0, 0.9, 450.0, 1500.0

Tokens = Callable[[int, int], float]
"""Share of a rank in a layer, 1 = its fair share."""


def even(rank: int, layer: int) -> float:
    return 1.0


def hot(rank: int, layer: int) -> float:
    return 1.6 if rank == 3 else 1 - 0.6 / (RANKS - 1)


def wandering(rank: int, layer: int) -> float:
    return 1.6 if rank == (3 * layer) % RANKS else 1 - 0.6 / (RANKS - 1)


def step_time(tokens: Tokens) -> float:
    """Of a healthy run, µs: all ranks wait for the one with most tokens, layer by layer."""
    products = sum(max(tokens(rank, layer) for rank in range(RANKS)) for layer in range(LAYERS))
    return LAYERS * (ATTENTION + 2 * MOVE) + products * TOKENS * PER_TOKEN + SUM


def write(folder: Path, *, tokens: Tokens = even, slow: dict[int, float] | None = None, seed: int = 0) -> None:
    """One trace per rank; `slow` multiplies the time of all computing of some ranks."""
    chance = random.Random(seed)
    traces = [_Trace(rank) for rank in range(RANKS)]
    for step in range(STEPS):
        for trace in traces:
            trace.begin(step)
        for layer in range(LAYERS):
            for trace in traces:
                trace.compute("attention_kernel", ATTENTION * _noise(chance), [TOKENS, WIDTH], slow)
            _meet(traces, "all_to_allv", MOVE)
            for trace in traces:
                count = round(TOKENS * tokens(trace.rank, layer))
                trace.compute("grouped_gemm_kernel", count * PER_TOKEN * _noise(chance), [count, WIDTH], slow)
            _meet(traces, "all_to_allv", MOVE)
        _meet(traces, "allreduce", SUM)
        for trace in traces:
            trace.end(step)
    folder.mkdir(parents=True, exist_ok=True)
    for trace in traces:
        trace.save(folder / f"rank-{trace.rank}.json")


def _noise(chance: random.Random) -> float:
    return 1 + 0.004 * chance.random()


def _meet(traces: list[_Trace], op: str, time: float) -> None:
    end = max(trace.now for trace in traces) + time
    for trace in traces:
        trace.collective(op, end)


class _Trace:
    def __init__(self, rank: int) -> None:
        self.rank, self.now, self.host, self.launches = rank, 100.0, 0.0, 0
        self.step_begin = 0.0
        self.events: list[dict[str, Any]] = []

    def begin(self, step: int) -> None:
        self.step_begin = self.host = max(self.host, self.now - 60.0)

    def end(self, step: int) -> None:
        self.host = max(self.host, self.now)
        self._span("user_annotation", f"ProfilerStep#{step}", self.step_begin, self.host - self.step_begin, 1)

    def compute(self, name: str, time: float, shape: list[int], slow: dict[int, float] | None) -> None:
        time *= (slow or {}).get(self.rank, 1.0)
        dims = {"Input Dims": [shape, [WIDTH, WIDTH]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
        self._launch("moe::" + name.removesuffix("_kernel"), dims)
        self._span("kernel", name, self.now, time, 7, correlation=self.launches, stream=7, device=0)
        self.now += time

    def collective(self, op: str, end: float) -> None:
        name = f"ncclDevKernel_{'AllReduce' if op == 'allreduce' else 'SendRecv'}"
        meta = {"Collective name": op, "Process Group Name": "0", "dtype": "BFloat16", "Group size": RANKS}
        meta |= {"In msg nelems": TOKENS * WIDTH, "Out msg nelems": TOKENS * WIDTH}
        self._launch("record_param_comms", {})
        self._span("kernel", name, self.now, end - self.now, 9, correlation=self.launches, stream=9, device=0, **meta)
        self.now = end

    def _launch(self, operator: str, args: dict[str, Any]) -> None:
        self.launches += 1
        self._span("cpu_op", operator, self.host, 6.0, 1, **args)
        self._span("cuda_runtime", "cudaLaunchKernel", self.host + 1, 4.0, 1, correlation=self.launches)
        self.host += 8.0

    def _span(self, category: str, name: str, start: float, time: float, tid: int, **args: Any) -> None:
        span = {"ph": "X", "cat": category, "name": name, "pid": self.rank, "tid": tid, "ts": start, "dur": time}
        self.events.append(span | {"args": args})

    def save(self, path: Path) -> None:
        group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": RANKS, "ranks": list(range(RANKS))}
        info = {"backend": "nccl", "rank": self.rank, "world_size": RANKS, "pg_count": 1, "pg_config": [group]}
        path.write_text(json.dumps({"distributedInfo": info, "traceEvents": self.events}))
