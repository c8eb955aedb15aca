"""DataParallelTrainer: the protocol between the loop of a workload and a framework."""

from __future__ import annotations

from typing import Protocol, Sequence

from paceline.training.workloads.synthetic_data import Samples


class DataParallelTrainer(Protocol):
    rank: int
    world_size: int

    def train_step(self, batch: Samples, learning_rate: float) -> None:
        """One update; gradients are averaged over the ranks. May return before the device is done."""
        ...

    def synchronize(self) -> None:
        """Returns when the device has done everything."""
        ...

    def correct(self, batch: Samples) -> tuple[int, int]:
        """Of the evaluated predictions: how many were right, and how many there were."""
        ...

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]: ...

    def close(self) -> None: ...
