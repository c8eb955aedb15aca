"""Write logs of light recorders, line by line, with numbers chosen by the test."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.recorder.step import CollectiveRecord, StepRecord

MS = 1_000_000


@dataclass
class Writer:
    """One rank's log."""

    folder: Path
    rank: int
    world: int = 4
    job: str = "job"
    started: int = 1_800_000_000_000_000_000
    step: int = 0

    def __post_init__(self) -> None:
        self.directory = self.folder / f"rank-{self.rank:05}-20270101T000000.000000-{self.started % 1000 + 1}"
        self.directory.mkdir(parents=True)
        self.path = self.directory / "summary-000001.jsonl"
        self.path.write_text(self._head("summary"))

    def add(self, *, step_ms: float, blocked_ms: float, data_ms: float = 0.0) -> None:
        self.step += 1
        numbers = [self.step, self.step * 100 * MS, step_ms * MS, blocked_ms * MS, data_ms * MS, 4096]
        self.raw(json.dumps([round(number) for number in numbers]) + "\n")

    def add_event(self, kind: str, text: str = "") -> None:
        self.raw(json.dumps([kind, self.step + 1, text]) + "\n")

    def details(self, *, groups: dict[str, list[int]] | None = None, ops: list[str] | None = None) -> None:
        """A detailed log of two steps with these communication groups and collectives."""
        head = json.loads(self._head("steps"))
        head["groups"] = {name: {"ranks": ranks, "called": name} for name, ranks in (groups or {}).items()}
        collectives = [[op, "group", 0, 1, 4096, 1, None] for op in ops or []]
        steps = [{"step": step, "t": step, "d": 1, "c": collectives} for step in (1, 2)]
        lines = [json.dumps(line, separators=(",", ":")) + "\n" for line in (head, *steps)]
        (self.directory / "steps-000001.jsonl").write_text("".join(lines))

    def raw(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def _head(self, kind: str) -> str:
        who = {"rank": self.rank, "world_size": self.world, "host": f"host{self.rank // 2}", "job": self.job}
        return json.dumps({"schema": "paceline.light/1", "kind": kind, "started": self.started, **who}) + "\n"


def train(ranks: list[Writer], steps: int, *, slow: dict[int, float] | None = None, seed: int = 1) -> None:
    """Synchronous steps: each rank has about 80 ms self time (× `slow`), all wait for the slowest, then 20 ms more."""
    chance = random.Random(seed)
    for _ in range(steps):
        work = {each.rank: 80 * chance.gauss(1, 0.01) * (slow or {}).get(each.rank, 1.0) for each in ranks}
        for each in ranks:
            step_ms = max(work.values()) + 20
            each.add(step_ms=step_ms, blocked_ms=step_ms - work[each.rank])


def write_recorder_logs(folder: Path, self_times: list[list[float]], *, stages: int = 1) -> None:
    """Complete logs of a job: self_times[rank][step] in ms, then all ranks wait in one all-reduce for the slowest, and
    transfer for 20 ms. The first step is a warm-up step."""
    world, per_stage = len(self_times), len(self_times) // stages
    groups = {"world": list(range(world))}
    if stages > 1:
        groups |= {f"pp_{first}": list(range(first, world, per_stage)) for first in range(per_stage)}
    durations = [max(times) + 20 for times in zip(*self_times, strict=True)]
    for rank, times in enumerate(self_times):
        directory = folder / f"rank-{rank:05}-20270101T000000.000000-{rank + 1}"
        directory.mkdir(parents=True)
        head = {
            "schema": "paceline.light/1",
            "segment": 1,
            "rank": rank,
            "world_size": world,
            "job": "a",
            "host": f"host{rank // 2}",
            "started": 1_800_000_000_000_000_000,
            "warm_up": 1,
            "groups": {name: {"ranks": ranks, "called": name} for name, ranks in groups.items()},
        }
        steps, summary = zip(*_lines(times, durations), strict=True)
        for kind, lines in (("steps", steps), ("summary", summary)):
            text = json.dumps(head | {"kind": kind}) + "\n" + "".join(lines)
            (directory / f"{kind}-000001.jsonl").write_text(text)


def _lines(self_times: list[float], durations: list[float]) -> Iterator[tuple[str, str]]:
    """As the recorder formats them."""
    start = 0
    for number, (self_time, duration) in enumerate(zip(self_times, durations, strict=True), 1):
        step = StepRecord(number, start)
        step.end = start + round(duration * MS)
        collective = CollectiveRecord("all_reduce", "world", 4096)
        collective.start, collective.end = start + round(self_time * MS), step.end
        collective.blocked = collective.end - collective.start
        step.add_collective(collective)
        yield step.to_lines(0)
        start = step.end
