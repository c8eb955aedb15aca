"""Result files of a run: throughput, accuracy, the loss of every step.

throughput_{rank}.json, accuracy.json and ranksize.json contain one number each, as for ais-bench.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Mapping, TextIO

from paceline.training.monitor import Monitor
from paceline.training.training_state import TrainingState


class ThroughputMonitor(Monitor):
    """Measures samples per second of this rank; the first step is warm-up."""

    def __init__(self, root: Path, facts: Mapping[str, object] | None = None) -> None:
        """`facts` of the model are written into workload.json, with batch and samples."""
        self._root, self._facts = root, facts or {}
        self._first: tuple[float, int] | None = None

    def step_end(self, state: TrainingState) -> None:
        if self._first is None:
            self._first = time.perf_counter(), state.step

    def train_end(self, state: TrainingState) -> None:
        if self._first is None or state.step <= self._first[1]:
            return  # fewer than two steps: no interval to measure
        began, step = self._first
        seconds = time.perf_counter() - began
        rate = (state.step - step) * state.batch_size / max(seconds, 1e-9)
        write_number(self._root / f"throughput_{state.rank}.json", rate)
        if state.rank == 0:
            write_number(self._root / "ranksize.json", state.world_size)
            samples = state.steps_per_epoch * state.global_batch_size
            facts = {**self._facts, "global_batch_size": state.global_batch_size, "train_samples": samples}
            (self._root / "workload.json").write_text(json.dumps(facts) + "\n")


class LossCurveMonitor(Monitor):
    """Writes the loss of every step with full precision, one line each; a resumed run appends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def train_begin(self, state: TrainingState) -> None:
        is_new = not self._path.exists()
        self._file = self._path.open("a", encoding="utf-8", buffering=1)
        if is_new:
            self._file.write("step,loss\n")

    def step_end(self, state: TrainingState) -> None:
        assert self._file is not None
        self._file.write(f"{state.step},{math.nan if state.loss is None else state.loss!r}\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def write_number(path: Path, value: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")
