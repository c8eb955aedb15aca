"""Op-level traces in the OSDI'25 study's format, made by walking every worker's program: an oracle for our replay.

`Pipeline.walk` answers when everything happens for one replica and step by asking each operation what it waits for, plainly
and recursively; it knows nothing of graphs, levels or arrays. Interleaved pipelines (`chunks` > 1) record a message for
every computing, also where the model begins or ends and nothing is sent, as the study's recorder does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb
import numpy as np

Key = tuple[str, int, int]
"""Operation type, number in its step, stage."""
Costs = dict[tuple[Key, int, int], float]
"""Seconds of an operation in replica and step."""
Spans = dict[Key, tuple[float, float]]

COMPUTING = ("forward-compute", "backward-compute", "optimizer", "gc")


@dataclass(frozen=True)
class Pipeline:
    stages: int
    replicas: int
    micro_batches: int
    chunks: int = 1
    steps: int = 4

    def program(self, stage: int) -> list[tuple[str, int]]:
        """(pass, number in that pass): warm up, then one forward, one backward, then drain."""
        total = self.micro_batches * self.chunks
        if self.chunks == 1:
            warm_up = min(total, self.stages - stage - 1)
        else:
            warm_up = min(total, (self.stages - stage - 1) * 2 + (self.chunks - 1) * self.stages)
        order = [("forward", k) for k in range(warm_up)]
        for k in range(total - warm_up):
            order += [("forward", warm_up + k), ("backward", k)]
        return order + [("backward", k) for k in range(total - warm_up, total)]

    def chunk(self, direction: str, number: int) -> int:
        """Micro-batches pass a chunk in groups as many as stages."""
        forward = number // self.stages % self.chunks
        return forward if direction == "forward" else self.chunks - 1 - forward

    def place(self, direction: str, number: int, stage: int) -> int:
        """Which chunk of the whole model."""
        return self.chunk(direction, number) * self.stages + stage

    def has_other_side(self, name: str, number: int, stage: int) -> bool:
        direction, kind = name.split("-")
        up = (direction == "forward") == (kind == "send")
        place = self.place(direction, number, stage)
        return place + 1 < self.stages * self.chunks if up else place > 0

    def messages(self, stage: int) -> list[Key]:
        keys = [
            (f"{direction}-{kind}", number, stage)
            for direction in ("forward", "backward")
            for kind in ("send", "recv")
            for number in range(self.micro_batches * self.chunks)
        ]
        return [key for key in keys if self.chunks > 1 or self.has_other_side(*key)]

    def keys(self) -> list[Key]:
        found: list[Key] = []
        for stage in range(self.stages):
            found += [(f"{direction}-compute", number, stage) for direction, number in self.program(stage)]
            found += self.messages(stage)
            found += [("params-all-gather", chunk, stage) for chunk in range(self.chunks)]
            found += [("gc", 0, stage), ("layernorm-grads-all-reduce", 0, stage), ("grads-reduce-scatter", 0, stage)]
            found += [("optimizer-clip-main-grad", 0, stage), ("optimizer", 0, stage)]
            if stage in (0, self.stages - 1):
                found.append(("embedding-grads-all-reduce", 0, stage))
        return found

    def walk(self, costs: Costs) -> dict[tuple[int, int], Spans]:
        """Begin and end of everything, by (replica, step)."""
        return {
            (replica, step): spans
            for step in range(self.steps)
            for replica, spans in enumerate(_Step(self, costs, step).spans())
        }

    def time(self, costs: Costs) -> float:
        """Mean step."""
        walked = self.walk(costs)
        ends = [
            max(max(end for _, end in walked[replica, step].values()) for replica in range(self.replicas))
            for step in range(self.steps)
        ]
        return float(np.mean(ends))

    def costs(self, compute: Callable[[int, int, int, int], float], *, message: float = 2e-4) -> Costs:
        """compute(stage, replica, step, micro-batch) gives the seconds of a forward; a backward takes twice as long."""
        costs: Costs = {}
        for key in self.keys():
            for replica in range(self.replicas):
                for step in range(self.steps):
                    costs[key, replica, step] = self._cost(key, compute, message, replica, step)
        return costs

    def _cost(
        self, key: Key, compute: Callable[[int, int, int, int], float], message: float, replica: int, step: int
    ) -> float:
        name, number, stage = key
        if name.endswith("-compute"):
            group, inside = divmod(number, self.stages * self.chunks)
            batch = group * self.stages + inside % self.stages
            return compute(stage, replica, step, batch) * (1 if name.startswith("forward") else 2) / self.chunks
        if name.endswith(("-send", "-recv")):
            return message if self.has_other_side(name, number, stage) else 1e-6
        return {"gc": 1e-5, "optimizer": 4e-3, "grads-reduce-scatter": 6e-3, "params-all-gather": 3e-3}.get(name, 3e-4)

    def ideal(self, costs: Costs) -> Costs:
        """Computing at its mean, communication at its median, by name."""
        alike: dict[str, list[float]] = {}
        for (key, _, _), cost in costs.items():
            alike.setdefault(key[0], []).append(cost)
        typical = {name: np.mean(values) if name in COMPUTING else np.median(values) for name, values in alike.items()}
        return {place: float(typical[place[0][0]]) for place in costs}

    def write(self, directory: Path, costs: Costs) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        rows = [
            (
                replica,
                stage,
                stage * self.replicas + replica,
                step,
                name,
                start,
                end - start,
                number,
                self._recorded_chunk(name, number),
            )
            for (replica, step), spans in self.walk(costs).items()
            for (name, number, stage), (start, end) in spans.items()
        ]
        names = ["dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc"]
        staged = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
        with duckdb.connect() as connection:
            connection.register("staged", staged)
            connection.execute(
                "COPY (SELECT * REPLACE (start_ts::FLOAT AS start_ts, duration::FLOAT AS duration, mc::TINYINT AS mc) "
                f"FROM staged) TO '{directory / 'trace-made.parquet'}' (FORMAT parquet)"
            )
        (directory / "meta-made.yaml").write_text(
            f"trial_name: made\ndp_size: {self.replicas}\npp_size: {self.stages}\nvpp_size: {self.chunks}\n"
        )
        return directory

    def _recorded_chunk(self, name: str, number: int) -> int:
        if name.endswith("-compute"):
            return self.chunk(name.partition("-")[0], number)
        return number if name == "params-all-gather" else 0 if name in COMPUTING or "grads" in name else -1


class _Step:
    """One step of all replicas."""

    def __init__(self, pipeline: Pipeline, costs: Costs, step: int) -> None:
        self.pipeline, self.costs, self.step = pipeline, costs, step
        self.orders = [pipeline.program(stage) for stage in range(pipeline.stages)]
        self.recorded = {key for stage in range(pipeline.stages) for key in pipeline.messages(stage)}
        self.span = cache(self._span)
        self.begin = cache(self._begin)

    def spans(self) -> list[Spans]:
        keys = self.pipeline.keys()
        return [{key: self.span(key, replica) for key in keys} for replica in range(self.pipeline.replicas)]

    def _span(self, key: Key, replica: int) -> tuple[float, float]:
        begins = [self.begin(member, other) for member, other in self._together(key, replica)]
        return self.begin(key, replica), max(begins) + self.costs[key, replica, self.step]

    def _end(self, key: Key, replica: int) -> float:
        return self.span(key, replica)[1]

    def _begin(self, key: Key, replica: int) -> float:
        return max([0.0, *(self._end(before, replica) for before in self._before(key))])

    def _together(self, key: Key, replica: int) -> list[tuple[Key, int]]:
        name, number, _ = key
        pipeline = self.pipeline
        everyone = range(pipeline.replicas)
        if name in ("grads-reduce-scatter", "params-all-gather"):
            return [(key, other) for other in everyone]
        if name == "optimizer-clip-main-grad":
            return [((name, number, other), column) for other in range(pipeline.stages) for column in everyone]
        if name == "embedding-grads-all-reduce":
            return [((name, number, other), replica) for other in (0, pipeline.stages - 1)]
        if name.endswith(("-send", "-recv")) and pipeline.has_other_side(*key):
            return [(key, replica), (self._other_side(key), replica)]
        return [(key, replica)]

    def _other_side(self, key: Key) -> Key:
        """The same micro-batch, one chunk of the model further: found by counting real messages on both sides."""
        name, number, stage = key
        direction, kind = name.split("-")
        step = 1 if (direction == "forward") == (kind == "send") else -1
        there = f"{direction}-{'recv' if kind == 'send' else 'send'}"
        other_stage = (stage + step) % self.pipeline.stages
        turn = sum(self.pipeline.has_other_side(name, earlier, stage) for earlier in range(number))
        real = [
            k
            for k in range(self.pipeline.micro_batches * self.pipeline.chunks)
            if self.pipeline.has_other_side(there, k, other_stage)
        ]
        return there, real[turn], other_stage

    def _before(self, key: Key) -> list[Key]:
        name, number, stage = key
        direction, _, kind = name.partition("-")
        order = self.orders[stage]
        if kind == "compute":
            return self._before_computing(key)
        if kind in ("send", "recv"):
            before = [(name, number - 1, stage)] if (name, number - 1, stage) in self.recorded else []
            if kind == "send":
                before.append((f"{direction}-compute", number, stage))
            elif number:
                before.append((f"{direction}-compute", number - 1, stage))
            first = order.index(("backward", 0))
            if direction == "backward" and number == 0 and first >= 2:
                before.append((f"{order[first - 2][0]}-compute", order[first - 2][1], stage))
            return before
        if name == "params-all-gather":
            return [(name, number - 1, stage)] if number else []
        last = order[-1]
        closing = [(f"{last[0]}-compute", last[1], stage), ("gc", 0, stage), ("layernorm-grads-all-reduce", 0, stage)]
        if stage in (0, self.pipeline.stages - 1):
            closing.append(("embedding-grads-all-reduce", 0, stage))
        closing += [("grads-reduce-scatter", 0, stage), ("optimizer-clip-main-grad", 0, stage), ("optimizer", 0, stage)]
        return [closing[closing.index(key) - 1]]

    def _before_computing(self, key: Key) -> list[Key]:
        name, number, stage = key
        direction = name.partition("-")[0]
        order = self.orders[stage]
        place = order.index((direction, number))
        before = [(f"{order[place - 1][0]}-compute", order[place - 1][1], stage)] if place else []
        if (f"{direction}-recv", number, stage) in self.recorded:
            before.append((f"{direction}-recv", number, stage))
        chunk = self.pipeline.chunk(direction, number)
        if direction == "forward" and number == self._first_forward(chunk):
            before.append(("params-all-gather", chunk, stage))
        return before

    def _first_forward(self, chunk: int) -> int:
        total = self.pipeline.micro_batches * self.pipeline.chunks
        return next(k for k in range(total) if self.pipeline.chunk("forward", k) == chunk)
