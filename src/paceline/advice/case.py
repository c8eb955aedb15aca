"""The case: everything the rules look at, worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.advice.finding import Gain
from paceline.advice.hardware import Hardware, usual_hardware
from paceline.analysis.operation_timeline import operation_timeline
from paceline.analysis.peers import Excess, excess_over_peers, peer_classes
from paceline.analysis.replay import Costs, Replay
from paceline.analysis.stages import inferred_stages
from paceline.analysis.timeline import Timeline, read_timeline
from paceline.run.run import Run

Floats = NDArray[np.float64]

FEWEST_STEPS = 2
"""Fewer that all ranks share say less than more that some do not."""


@dataclass(frozen=True)
class Place:
    rank: int
    host: str | None
    device: int | None
    stage: int


class Case:
    """A run under examination. Arrays are ranks × steps; `places[i]` says which rank row i is."""

    def __init__(self, run: Run, steps: tuple[int, ...] | None = None, *, hardware: Hardware | None = None) -> None:
        self.run = run
        self.chosen = steps
        self.hardware = hardware or usual_hardware()
        run.load(["ranks", "groups", "steps", "collectives", "links"])

    @cached_property
    def line(self) -> Timeline:
        steps = self.chosen or self._shared_steps()
        return operation_timeline(self.run, steps) or read_timeline(self.run, steps)

    def _shared_steps(self) -> tuple[int, ...] | None:
        """Steps every rank recorded, where some are not: a wait for who did not record it looks like a slow transfer.

        None = all of them, also where hardly any is shared.
        """
        counts = self.rows("SELECT step, count(*) FROM steps WHERE step IS NOT NULL GROUP BY step ORDER BY step")
        most = max((count for _, count in counts), default=0)
        shared = tuple(step for step, ranks in counts if ranks == most)
        return shared if FEWEST_STEPS <= len(shared) < len(counts) else None

    @cached_property
    def replay(self) -> Replay:
        return Replay(self.line)

    @cached_property
    def places(self) -> list[Place]:
        known = {
            rank: Place(rank, host, device, -1 if stage is None else stage)
            for rank, host, device, stage in self.rows("SELECT rank, host, device, stage FROM ranks")
        }
        return [known.get(rank, Place(rank, None, None, -1)) for rank in self.line.events.ranks.tolist()]

    @cached_property
    def stages(self) -> NDArray[np.int64]:
        """Pipeline stage of each rank, as declared, else as its sends and receives show; -1 = unknown."""
        declared = np.array([place.stage for place in self.places], dtype=np.int64)
        return declared if (declared >= 0).any() else inferred_stages(self.line)

    @cached_property
    def own(self) -> Floats:
        """Own time, ns: what a rank spends on itself, waiting left out.

        Where the device recorded what communication nothing covered, it is the rest of the step; else what the main line
        tells, which may take a wait inside a message that was posted early for work.
        """
        own, recorded = self.line.own_time(), self.matrix("(duration - exposed)")
        for ranks in self.classes:
            rows = list(ranks)
            if not np.isnan(recorded[rows][self.line.known[rows]]).any():
                own[rows] = recorded[rows]
        return own

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        return peer_classes(self.line, self.stages)

    @cached_property
    def excess(self) -> Excess:
        return excess_over_peers(self.own, self.classes)

    @cached_property
    def step_ms(self) -> float:
        return self.replay.measured.step_time / 1e6

    def gain(self, costs: Costs) -> Gain:
        """Replay with these costs; the ratio to the replay of the unchanged run is applied to the measured step."""
        base = self.replay.base.step_time
        ratio = min(1.0, self.replay.run(costs).step_time / base) if base else 1.0
        return Gain(self.step_ms, self.step_ms * ratio, costs)

    def no_gain(self) -> Gain:
        return Gain(self.step_ms, self.step_ms)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.run.sql(query).fetchall()

    def matrix(self, column: str) -> Floats:
        """A column of `steps` as ranks × steps, nan where unknown."""
        result = np.full(self.line.known.shape, np.nan)
        places = {place.rank: i for i, place in enumerate(self.places)}
        steps = {int(step): i for i, step in enumerate(self.line.steps.tolist())}
        for rank, step, value in self.rows(f"SELECT rank, step, {column} FROM steps WHERE {column} IS NOT NULL"):
            if rank in places and step in steps:
                result[places[rank], steps[step]] = value
        return result

    def ranks_of(self, places: list[int]) -> tuple[int, ...]:
        return tuple(self.places[place].rank for place in sorted(places))

    def hosts_of(self, places: list[int]) -> tuple[str, ...]:
        return tuple(sorted({host for place in places if (host := self.places[place].host)}))
