"""Train a workload with synthetic data, evaluate it after every epoch, write the result files of docs/bench.md."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Iterator, Sequence

import numpy as np

from paceline.core.errors import PacelineError, UsageError
from paceline.training.monitor import Monitor, Monitored
from paceline.training.runner.results import write_number
from paceline.training.training_state import TrainingState
from paceline.training.workloads.data_parallel import DataParallelTrainer
from paceline.training.workloads.model_flops import tokens_per_sample, training_flops
from paceline.training.workloads.options import WorkloadOptions, parse_options
from paceline.training.workloads.synthetic_data import Samples, evaluation_part, training_part


def main(arguments: Sequence[str]) -> int:
    """The first argument is the workload; RANK and WORLD_SIZE as the job's backend sets them."""
    _use_ascend_names()
    try:
        run_workload(parse_options(arguments[0] if arguments else "", arguments[1:]))
    except PacelineError as error:
        print(f"paceline: {error}" + (f"\n          {error.hint}" if error.hint else ""), file=sys.stderr)
        return error.exit_code
    return 0


def run_workload(options: WorkloadOptions) -> None:
    trainer = _trainer(options)
    try:
        began = time.time()
        train = training_part(options, trainer.rank, trainer.world_size)
        evaluate = evaluation_part(options, trainer.rank, trainer.world_size)
        loaded = time.time()
        run = _Run(options, trainer, train, evaluate)
        run.train()
        run.write(_output(options), began, loaded)
    finally:
        trainer.close()


def _use_ascend_names() -> None:
    """ModelArts starts one process per card and names ranks in Ascend's way."""
    for name, ascend in {"RANK": "RANK_ID", "WORLD_SIZE": "RANK_SIZE", "LOCAL_RANK": "DEVICE_ID"}.items():
        if ascend in os.environ:
            os.environ.setdefault(name, os.environ[ascend])
    os.environ.setdefault("MASTER_ADDR", os.environ.get("VC_WORKER_HOSTS", "127.0.0.1").split(",")[0])


def _trainer(options: WorkloadOptions) -> DataParallelTrainer:
    if options.framework == "mindspore":
        from paceline.training.workloads.mindspore_trainer import MindSporeTrainer

        return MindSporeTrainer(options)
    from paceline.training.workloads.torch_trainer import TorchTrainer

    return TorchTrainer(options)


def _output(options: WorkloadOptions) -> Path:
    """Where nodes train alone, each has its own directory."""
    alone = os.environ.get("SINGLESERVER_MODE")
    return options.train_url / os.environ.get("VC_TASK_INDEX", "0") if alone else options.train_url


@dataclass
class _Run:
    options: WorkloadOptions
    trainer: DataParallelTrainer
    train_data: Samples
    evaluation_data: Samples
    evaluations: list[dict[str, object]] = field(default_factory=list)
    steps: int = 0
    measured_steps: int = 0
    seconds: float = 0.0
    accuracy: float = 0.0

    def __post_init__(self) -> None:
        self.steps_per_epoch = len(self.train_data) // self.options.batch_size
        if not self.steps_per_epoch:
            ranks = f"{self.trainer.world_size} ranks × batch_size {self.options.batch_size}"
            raise UsageError(f"train_samples {self.options.train_samples} are not enough for one step of {ranks}")
        self.total_steps = self.steps_per_epoch * self.options.epochs
        if self.total_steps <= self.options.warmup_steps:
            raise UsageError(f"{self.total_steps} steps in all, of which {self.options.warmup_steps} are warm-up")

    def train(self) -> None:
        state = TrainingState(
            self.trainer.rank,
            self.trainer.world_size,
            steps_per_epoch=self.steps_per_epoch,
            total_steps=self.total_steps,
            batch_size=self.options.batch_size,
        )
        with Monitored(self._monitors(), state) as loop:
            for epoch in range(self.options.epochs):
                self._epoch(epoch, loop)
                loop.epoch_end()
                self._evaluate(epoch + 1)
                if 0 < self.options.target_accuracy <= self.accuracy:
                    break

    def _epoch(self, epoch: int, loop: Monitored) -> None:
        """Only training after the warm-up is timed."""
        since: float | None = None
        for batch in self._batches(epoch):
            if since is None and self.steps >= self.options.warmup_steps:
                self.trainer.synchronize()
                since = time.perf_counter()
            loop.step_begin()
            self.trainer.train_step(batch, self._learning_rate())
            self.steps += 1
            self.measured_steps += since is not None
            loop.step_end()
        self.trainer.synchronize()
        if since is not None:
            self.seconds += time.perf_counter() - since

    def _batches(self, epoch: int) -> Iterator[Samples]:
        """In an order of this rank's and this epoch's own."""
        order = np.random.default_rng((self.options.seed, self.trainer.rank, epoch)).permutation(len(self.train_data))
        for step in range(self.steps_per_epoch):
            first = step * self.options.batch_size
            yield self.train_data.take(order[first : first + self.options.batch_size])

    def _learning_rate(self) -> float:
        """Rises over a tenth of the steps, then falls to a tenth of itself."""
        rise = max(1, self.total_steps // 10)
        done = self.steps / self.total_steps
        return self.options.learning_rate * min(1.0, (self.steps + 1) / rise) * (1 - 0.9 * done)

    def _evaluate(self, epoch: int) -> None:
        right = counted = 0
        for first in range(0, len(self.evaluation_data), self.options.batch_size):
            batch = self.evaluation_data.take(
                np.arange(first, min(first + self.options.batch_size, len(self.evaluation_data)))
            )
            hits, of = self.trainer.correct(batch)
            right, counted = right + hits, counted + of
        right_everywhere, counted_everywhere = self.trainer.sum_over_ranks([right, counted])
        self.accuracy = right_everywhere / counted_everywhere if counted_everywhere else 0.0
        seen = self.steps * self.options.batch_size * self.trainer.world_size
        self.evaluations.append({"time": _now(), "accuracy": self.accuracy, "epoch": epoch, "samples": seen})
        if self.trainer.rank == 0:
            print(f"epoch {epoch}: accuracy {self.accuracy:.4f} after {seen:,} samples", flush=True)

    def _monitors(self) -> list[Monitor]:
        if not self.options.profile:
            return []
        from paceline.training.monitors.profile import ProfileMonitor

        path = _output(self.options) / "profile" / f"rank_{self.trainer.rank}"
        first, last = self.options.profile_start_step, self.options.profile_stop_step
        return [ProfileMonitor(first, min(last, self.total_steps), path)]

    def write(self, place: Path, began: float, loaded: float) -> None:
        rate = self.measured_steps * self.options.batch_size / self.seconds
        write_number(place / f"throughput_{self.trainer.rank}.json", rate)
        if self.trainer.rank:
            return
        write_number(place / "ranksize.json", self.trainer.world_size)
        alone = os.environ.get("SINGLESERVER_MODE")
        node = os.environ.get("VC_TASK_INDEX", "0")
        write_number(place.parent / f"accuracy_{node}.json" if alone else place / "accuracy.json", self.accuracy)
        top = place.parent if alone else place
        _write_json(top / "evaluations.json", self.evaluations)
        _write_json(top / "phases.json", {"dataload_start_time": _iso(began), "dataload_end_time": _iso(loaded)})
        _write_json(top / "workload.json", self._facts())

    def _facts(self) -> dict[str, object]:
        """What was trained, for MFU, tokens/s and MLPerf's log."""
        options, ranks = self.options, self.trainer.world_size
        return {
            "model": options.model,
            "framework": options.framework,
            "precision": options.precision,
            "seed": options.seed,
            "global_batch_size": options.batch_size * ranks,
            "train_samples": self.steps_per_epoch * options.batch_size * ranks,
            "eval_samples": options.eval_samples,
            "tokens_per_sample": tokens_per_sample(options),
            "flops_per_sample": training_flops(options),
        }


def _write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value) + "\n")


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


def _now() -> str:
    return _iso(time.time())
