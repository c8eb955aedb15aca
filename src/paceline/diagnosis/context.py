"""The context: everything the rules look at, worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.diagnosis.components.link_faults import LinkFault, link_faults
from paceline.diagnosis.hardware import Hardware, default_hardware
from paceline.diagnosis.rule_finding import PredictedGain
from paceline.metrics.communication.collectives import arrivals
from paceline.metrics.memory import rank_memory
from paceline.metrics.network.link_model import LinkExcess, link_excess
from paceline.metrics.network.link_traffic import link_traffic
from paceline.metrics.peers import Excess, PeerGroups
from paceline.metrics.rank_performance import RankPerformance, rank_performance
from paceline.metrics.steps import step_condition
from paceline.metrics.table import Table
from paceline.metrics.timeline.rank_timeline import Timeline
from paceline.metrics.uneven_work import UnevenWork, uneven_payload, uneven_work
from paceline.replay.fixes import with_equal_work
from paceline.replay.replay import Costs, Replay
from paceline.run.run import Run

Floats = NDArray[np.float64]

EVEN_PERCENT = 0.5
"""Gain of dealing work evenly from which it is asked whether work is uneven."""
SAMPLED_STEPS = 4


@dataclass(frozen=True)
class RankInfo:
    """Where a rank runs; stage -1 = unknown."""

    rank: int
    host: str | None
    device: int | None
    stage: int


class DiagnosisContext:
    """A run that is diagnosed. Arrays are ranks × steps; row i belongs to the rank `ranks[i]`."""

    def __init__(self, run: Run, steps: tuple[int, ...] | None = None, *, hardware: Hardware | None = None) -> None:
        self.run = run
        self.chosen = steps
        self.hardware = hardware or default_hardware()
        self._matrices: dict[str, Floats] = {}
        run.load(["ranks", "groups", "steps", "collectives", "links"])

    @cached_property
    def performance(self) -> RankPerformance:
        """The numbers of each rank: the same that every report and page shows."""
        return rank_performance(self.run, self.chosen or None)

    @property
    def timeline(self) -> Timeline:
        return self.performance.timeline

    @cached_property
    def replay(self) -> Replay:
        return Replay(self.timeline)

    @cached_property
    def ranks(self) -> list[RankInfo]:
        known = {
            rank: RankInfo(rank, host, device, -1 if stage is None else stage)
            for rank, host, device, stage in self.rows("SELECT rank, host, device, stage FROM ranks")
        }
        return [known.get(rank, RankInfo(rank, None, None, -1)) for rank in self.timeline.events.ranks.tolist()]

    @property
    def stages(self) -> NDArray[np.int64]:
        """Pipeline stage of each rank; -1 = unknown."""
        return self.performance.stages

    @property
    def self_time(self) -> Floats:
        """ns, see metrics/self_time.py."""
        return self.performance.self_time

    @property
    def peer_groups(self) -> PeerGroups:
        return self.performance.peer_groups

    @property
    def excess(self) -> Excess:
        """Of self time over the reference of the peers."""
        return self.performance.excess

    def last_share(self, rank: int) -> float | None:
        """In which share of its collectives a rank arrived last; None where no collective was recorded."""
        return self._last_shares.get(rank, 0.0) if self._last_shares else None

    @cached_property
    def _last_shares(self) -> dict[int, float]:
        found = arrivals(self.run, step_condition(self.performance.steps.tolist())).numbers
        return dict(zip(found["rank"].astype(int).tolist(), found["last_share"].tolist(), strict=True))

    @cached_property
    def memory(self) -> Table:
        """Peaks of device memory, see metrics/memory.py."""
        ranks = self.performance.ranks.tolist()
        return rank_memory(self.run, ranks, self.peer_groups, self.hardware.memory_for)

    @cached_property
    def link_excess(self) -> LinkExcess:
        """Every link against what it should need, see metrics/network/link_model.py."""
        self.run.load(["ranks", "groups", "transfers", "packets"])
        traffic = link_traffic(self.run, step_condition(self.performance.steps.tolist()))
        hosts = {info.rank: info.host for info in self.ranks}
        return link_excess(traffic, hosts, self.hardware.transports)

    @cached_property
    def link_faults(self) -> tuple[LinkFault, ...]:
        """Components that make links slow."""
        return link_faults(self.link_excess)

    @cached_property
    def uneven_work(self) -> tuple[UnevenWork | None, ...]:
        """Of every group of peers, see metrics/uneven_work.py."""
        groups = [rank_rows for rank_rows in self.peer_groups if len(rank_rows) > 1]
        return tuple(
            self._uneven_work(rank_rows) if self.even_gain(rank_rows).percent >= EVEN_PERCENT else None
            for rank_rows in groups
        )

    def _uneven_work(self, rank_rows: tuple[int, ...]) -> UnevenWork | None:
        """Kernels are many: some steps, spread over the run, stand for all."""
        steps = self.performance.steps
        few = steps[np.unique(np.linspace(0, len(steps) - 1, min(SAMPLED_STEPS, len(steps))).astype(np.int64))].tolist()
        found = uneven_work(self.run, self.global_ranks(list(rank_rows)), few)
        return found or uneven_payload(self.timeline, rank_rows)

    def even_gain(self, rank_rows: tuple[int, ...]) -> PredictedGain:
        """If the work of each place of the program were dealt evenly among these peers."""
        return self.mean_gain(with_equal_work(self.replay, self.replay.costs, [rank_rows]))

    def extra_work(self, rank: int) -> float:
        """ns per step that a rank computes longer than its reference because it has more rows."""
        return max((found.more(rank) for found in self.uneven_work if found and rank in found.extra), default=0.0)

    @cached_property
    def step_ms(self) -> float:
        return self.replay.measured.step_time / 1e6

    def gain(self, costs: Costs) -> PredictedGain:
        """Replay with these costs; the ratio to the replay of the unchanged run is applied to the measured step."""
        base = self.replay.base.step_time
        ratio = min(1.0, self.replay.run(costs).step_time / base) if base else 1.0
        return PredictedGain(self.step_ms, self.step_ms * ratio, costs)

    def mean_gain(self, costs: Costs) -> PredictedGain:
        """As `gain`, of the mean step: for causes that strike in some steps only."""
        now, base = float(np.mean(self.replay.measured.step_times)) / 1e6, float(np.mean(self.replay.base.step_times))
        ratio = min(1.0, float(np.mean(self.replay.run(costs).step_times)) / base) if base else 1.0
        return PredictedGain(now, now * ratio, costs)

    def no_gain(self) -> PredictedGain:
        """For findings that cost no time by themselves."""
        return PredictedGain(self.step_ms, self.step_ms)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of a query over the tables of docs/tables.md."""
        return self.run.sql(query).fetchall()

    def matrix(self, column: str) -> Floats:
        """A column of `steps` as ranks × steps, nan where unknown."""
        if column not in self._matrices:
            self._matrices[column] = self._read_matrix(column)
            self._matrices[column].flags.writeable = False  # all rules share it
        return self._matrices[column]

    def _read_matrix(self, column: str) -> Floats:
        result = np.full(self.timeline.known.shape, np.nan)
        row_of = {info.rank: row for row, info in enumerate(self.ranks)}
        column_of = {int(step): column for column, step in enumerate(self.timeline.steps.tolist())}
        for rank, step, value in self.rows(f"SELECT rank, step, {column} FROM steps WHERE {column} IS NOT NULL"):
            if rank in row_of and step in column_of:
                result[row_of[rank], column_of[step]] = value
        return result

    def global_ranks(self, rank_rows: list[int]) -> tuple[int, ...]:
        """Ranks of these rows."""
        return tuple(self.ranks[rank_row].rank for rank_row in sorted(rank_rows))

    def hosts_of(self, rank_rows: list[int]) -> tuple[str, ...]:
        """Hosts of the ranks of these rows; none where the recording names none."""
        return tuple(sorted({host for rank_row in rank_rows if (host := self.ranks[rank_row].host)}))
