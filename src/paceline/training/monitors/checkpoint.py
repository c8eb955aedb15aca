"""CheckpointMonitor: saves weights, optimizer state and progress; atomically, optionally in the background."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Dict, Union

from paceline.core.errors import PacelineError, UsageError
from paceline.training.background_thread import BackgroundThread
from paceline.training.monitor import Monitor
from paceline.training.monitor_calls import StopTraining
from paceline.training.monitor_status import MonitorStatus
from paceline.training.ranks import Ranks
from paceline.training.session.output_tree import OutputTree, default_root
from paceline.training.training_state import TrainingState, Weights

if TYPE_CHECKING:
    from paceline.checkpoint.write_checkpoint import InMemoryTensor
    from paceline.training.checkpointing.mindformers_v2_saver import IterationSaver
    from paceline.training.checkpointing.rank_saver import SavePoint

_log = logging.getLogger("paceline.training")

Scalars = Dict[str, Union[int, float]]
_FAILURE_WAIT = 15.0
"""Seconds to wait for other ranks after a failure."""


class CheckpointMonitor(Monitor):
    """Every `save_checkpoint_steps` steps (or `save_checkpoint_seconds` seconds) and at the end.

    With async_save the loop only waits for a copy in memory. If the disk is too slow, saves are skipped at steps that all
    ranks agree on, so that some step is always complete on every rank.
    """

    def __init__(
        self,
        prefix: str = "CKP",
        directory: str | Path | None = None,
        *,
        save_checkpoint_steps: int | None = None,
        save_checkpoint_seconds: int = 0,
        keep_checkpoint_max: int = 5,
        async_save: bool | str = False,
        integrated_save: bool = True,
        checkpoint_format: str = "ckpt",
        save_network_params: bool = False,
        save_trainable_params: bool = False,
        save_optimizer: bool = True,
        use_legacy_format: bool = True,
        exception_save: bool = False,
        global_batch_size: int | None = None,
        append_info: Mapping[str, int | float] | None = None,
        raise_failures: bool = False,
        outputs: OutputTree | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        by_clock = not save_checkpoint_steps and save_checkpoint_seconds > 0
        steps = 1 if save_checkpoint_steps is None else save_checkpoint_steps
        if steps <= 0 and not by_clock:
            raise UsageError("CheckpointMonitor: save_checkpoint_steps (or _seconds) must be at least 1")
        if "/" in prefix or not prefix:
            raise UsageError(f"CheckpointMonitor: prefix {prefix!r} cannot be part of a file name")
        if checkpoint_format not in ("ckpt", "safetensors"):
            raise UsageError(
                f"CheckpointMonitor: unknown checkpoint_format {checkpoint_format!r}", hint="known: ckpt, safetensors"
            )
        if save_checkpoint_seconds > 0 and not by_clock:
            _log.warning(
                "CheckpointMonitor: save_checkpoint_seconds has no effect, because save_checkpoint_steps is set"
            )
        self._prefix, self._steps, self._seconds = prefix, 0 if by_clock else steps, save_checkpoint_seconds
        self._keep, self._async, self._format = keep_checkpoint_max, bool(async_save), checkpoint_format
        self._network, self._trainable, self._optimizer = save_network_params, save_trainable_params, save_optimizer
        self._legacy, self._on_exception = use_legacy_format, exception_save
        self._batch, self._append, self._raise = global_batch_size, dict(append_info or {}), raise_failures
        # integrated_save gathers slices in MindSpore; here a rank saves what it is given, full tensors or slices.
        self._outputs = outputs or OutputTree(default_root())
        self._base = Path(directory).absolute() if directory else None
        self._ranks = ranks
        self._background = BackgroundThread("paceline-checkpoint")
        self._prepared = self._ended = False
        self._iteration_saver: IterationSaver | None = None
        self._saved, self._took = -1, 0.0
        self._status = MonitorStatus(None, "checkpoint-monitor")

    # -- calls of the training loop--------------------------------------------------------------------------------------

    def train_begin(self, state: TrainingState) -> None:
        from paceline.training.checkpointing.mindformers_v2_saver import IterationSaver
        from paceline.training.checkpointing.rank_saver import RankSaver
        from paceline.training.checkpointing.save_schedule import EverySeconds, EverySteps, SaveSchedule
        from paceline.training.checkpointing.weight_snapshot import WeightSnapshot

        ranks = self._ranks or replace(Ranks.from_environment(), rank=state.rank, world_size=state.world_size)
        self._schedule: SaveSchedule = (
            EverySteps(self._steps, state.step) if self._steps else EverySeconds(self._seconds, state)
        )
        self._status = MonitorStatus(self._outputs.log(ranks.rank), "checkpoint-monitor")
        self._snapshot = WeightSnapshot()
        attempt = os.environ.get("PACELINE_RUN_ID") or f"from step {state.step}"
        self._format = self._format_for(state)
        if self._legacy:
            self._rank_saver = RankSaver(self._directory(ranks.rank), self._prefix, ranks, self._format, self._keep)
            self._rank_saver.begin(state.step, attempt)
        else:
            self._iteration_saver = IterationSaver(
                self._base or self._outputs.checkpoints, self._prefix, ranks, self._keep
            )
            self._iteration_saver.begin(attempt)

    def _format_for(self, state: TrainingState) -> str:
        """Slices of tensors need a format whose header tells which slice each is."""
        from paceline.training.checkpointing.shards import is_sharded

        if self._format == "safetensors" or not any(map(is_sharded, state.weights().values())):
            return self._format
        _log.info("the model is sharded: checkpoints are saved as safetensors, each rank its slices")
        return "safetensors"

    def step_end(self, state: TrainingState) -> None:
        if self._schedule.is_due(state.step, busy=self._background.busy, took=self._took):
            self._save(state, background=self._async)
        elif self._async and not self._prepared:
            self._prepare(state)

    def train_end(self, state: TrainingState) -> None:
        self._ended = True
        self._background.wait()
        if self._saved != state.step:
            self._save(state, background=False)

    def train_failed(self, state: TrainingState, error: BaseException) -> None:
        self._shorten_waiting()
        self._background.wait()
        if self._on_exception and self._saved != state.step:
            self._save(state, background=False)

    def close(self) -> None:
        if not self._ended:
            self._shorten_waiting()
        self._background.wait()
        self._background.close()
        if self._raise and self._status.problem is not None:
            raise StopTraining(str(self._status.problem), hint=self._status.problem.hint) from self._status.problem

    def _shorten_waiting(self) -> None:
        """Ranks that died never finish their part; do not delay the upload of complete checkpoints."""
        if self._iteration_saver is not None:
            self._iteration_saver.limit_waiting(_FAILURE_WAIT)

    # -- saving ------------------------------------------------------------------------------------------------------

    def _prepare(self, state: TrainingState) -> None:
        """Reserve memory after the first step, when the optimizer state exists."""
        self._prepared = True
        self._snapshot.prepare({**state.weights(), **(state.optimizer_state() if self._optimizer else {})})

    def _save(self, state: TrainingState, *, background: bool) -> None:
        from paceline.training.checkpointing.rank_saver import SavePoint

        point = SavePoint(state.epoch if state.steps_per_epoch else 1, state.step_in_epoch, state.step)
        began = monotonic()
        try:
            data = self._collect(state, copied=background)
        except Exception as error:  # a framework may raise anything for weights that cannot be read
            self._status.failed(_problem_of(error), consequence="this checkpoint is skipped, training continues")
            return
        work = partial(self._write, point, data, began)
        if background:
            self._background.start(work)
        else:
            work()

    def _collect(self, state: TrainingState, *, copied: bool) -> _CheckpointData:
        from paceline.training.checkpointing.weight_snapshot import wrap_weights

        weights = state.weights()
        values = self._values(state, weights)
        tensors = self._snapshot.take(values) if copied else wrap_weights(values)
        trainable = {name for name in weights if state.trainable(name)}
        return _CheckpointData(tensors, self._scalars(state), set(weights), trainable)

    def _write(self, point: SavePoint, data: _CheckpointData, began: float) -> None:
        """Runs in the training loop or in the background thread."""
        try:
            if self._iteration_saver is not None:
                path = self._iteration_saver.save(point, data.tensors, data.scalars, data.weights)
            else:
                path = self._write_files(point, data)
        except Exception as error:  # in the background thread nothing else would report it
            self._status.failed(_problem_of(error), consequence="earlier checkpoints are kept, training continues")
        else:
            self._took, self._saved = monotonic() - began, point.global_step
            self._status.succeeded(step=point.global_step, file=str(path), seconds=round(self._took, 3))

    def _write_files(self, point: SavePoint, data: _CheckpointData) -> Path:
        from paceline.checkpoint.write_checkpoint import write_file
        from paceline.training.checkpointing.weight_snapshot import wrap_weights

        own = {tensor.name for tensor in data.tensors}
        scalars = wrap_weights({name: value for name, value in data.scalars.items() if name not in own})
        path = self._rank_saver.save(point, [*data.tensors, *scalars])
        rank = self._rank_saver.ranks.rank
        stem = f"{self._prefix}_rank_{rank}"
        if self._network:
            target = self._outputs.checkpoint_network(rank) / f"{stem}-network.{self._format}"
            write_file(target, data.select(data.weights), self._format)
        if self._trainable:
            target = self._outputs.checkpoint_trainable(rank) / f"{stem}-trainable_params.{self._format}"
            write_file(target, data.select(data.trainable), self._format)
        return path

    def _values(self, state: TrainingState, weights: Weights) -> dict[str, Any]:
        values = dict(weights)
        if self._optimizer:
            values.update(state.optimizer_state())
        if not values:
            raise PacelineError("TrainingState.weights returned no weights", hint="set TrainingState.weights")
        return values

    def _scalars(self, state: TrainingState) -> Scalars:
        found: Scalars = {
            "epoch_num": state.epoch,
            "step_num": state.step_in_epoch,
            "global_step": state.step,
            "global_batch_size": self._batch or state.global_batch_size,
        }
        if state.loss_scale is not None:
            found["loss_scale"] = float(state.loss_scale)
        return {**found, **self._append, **state.extra}

    def _directory(self, rank: int) -> Path:
        if self._base is None:
            return self._outputs.checkpoint(rank)
        path = self._base / f"rank_{rank}"
        path.mkdir(parents=True, exist_ok=True)
        return path


def _problem_of(error: Exception) -> PacelineError:
    if isinstance(error, PacelineError):
        return error
    if isinstance(error, MemoryError):
        return PacelineError("not enough memory for a copy of the weights")
    kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
    return PacelineError(f"checkpoint: {kind}{' '.join(str(error).split())[:300]}")


@dataclass(frozen=True)
class _CheckpointData:
    """Content of one checkpoint."""

    tensors: Sequence[InMemoryTensor]
    scalars: Scalars
    weights: Set[str]
    """Names of the model's tensors; the others belong to the optimizer."""
    trainable: Set[str]

    def select(self, names: Set[str]) -> list[InMemoryTensor]:
        return [tensor for tensor in self.tensors if tensor.name in names]
