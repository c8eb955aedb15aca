"""Logs as light recorders write them, line by line, with numbers chosen by the test."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

MS = 1_000_000


@dataclass
class Writer:
    """One rank's summary, appended to whenever the test likes."""

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

    def tell(self, kind: str, text: str = "") -> None:
        self.raw(json.dumps([kind, self.step + 1, text]) + "\n")

    def groups(self, **members: list[int]) -> None:
        """A detailed log whose head names these groups."""
        head = json.loads(self._head("steps"))
        head["groups"] = {name: {"ranks": ranks, "called": name} for name, ranks in members.items()}
        (self.directory / "steps-000001.jsonl").write_text(json.dumps(head) + '\n{"step":1,"t":0,"d":1}\n')

    def raw(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def _head(self, kind: str) -> str:
        who = {"rank": self.rank, "world_size": self.world, "host": f"host{self.rank // 2}", "job": self.job}
        return json.dumps({"schema": "paceline.light/1", "kind": kind, "started": self.started, **who}) + "\n"


def train(ranks: list[Writer], steps: int, *, slow: dict[int, float] | None = None, seed: int = 1) -> None:
    """Synchronous steps: each rank works about 80 ms (`slow`: times as long), all wait for the slowest, then 20 ms."""
    chance = random.Random(seed)
    for _ in range(steps):
        work = {each.rank: 80 * chance.gauss(1, 0.01) * (slow or {}).get(each.rank, 1.0) for each in ranks}
        for each in ranks:
            step_ms = max(work.values()) + 20
            each.add(step_ms=step_ms, blocked_ms=step_ms - work[each.rank])
