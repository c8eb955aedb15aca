"""CheckpointMonitor: saves weights, optimizer and progress; atomically, beside training, old ones pruned last."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from paceline.errors import PacelineError, UsageError
from paceline.training.background import Background
from paceline.training.monitor import Monitor
from paceline.training.outputs import OutputTree, default_root
from paceline.training.ranks import Ranks
from paceline.training.state import TrainingState, Weights
from paceline.training.telling import Told, log

Scalars = dict[str, int | float]


class CheckpointMonitor(Monitor):
    """Every `save_checkpoint_steps` steps and at the end.

    With async_save the loop only waits for a copy in memory. If the disk is slower than that, every second save is
    left out (then three of four, …): at steps all ranks agree on, so that some step is always complete everywhere.
    """

    def __init__(
        self,
        prefix: str = "CKP",
        directory: str | Path | None = None,
        *,
        save_checkpoint_steps: int = 1,
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
        if save_checkpoint_steps <= 0 and save_checkpoint_seconds <= 0:
            raise UsageError("CheckpointMonitor: save_checkpoint_steps (or _seconds) must be at least 1")
        if "/" in prefix or not prefix:
            raise UsageError(f"CheckpointMonitor: prefix {prefix!r} cannot be part of a file's name")
        if checkpoint_format not in ("ckpt", "safetensors"):
            raise UsageError(
                f"CheckpointMonitor: checkpoint_format {checkpoint_format!r}", hint="known: ckpt, safetensors"
            )
        self._prefix, self._steps, self._seconds = prefix, save_checkpoint_steps, save_checkpoint_seconds
        self._keep, self._async, self._format = keep_checkpoint_max, bool(async_save), checkpoint_format
        self._network, self._trainable, self._optimizer = save_network_params, save_trainable_params, save_optimizer
        self._legacy, self._on_exception = use_legacy_format, exception_save
        self._batch, self._append, self._raise = global_batch_size, dict(append_info or {}), raise_failures
        # integrated_save gathers slices: what a rank is given here is what it saves, whole or a slice.
        self._outputs = outputs or OutputTree(default_root())
        self._place = Path(directory).absolute() if directory else None
        self._ranks = ranks
        self._background = Background("paceline-checkpoint")
        self._spread = 1
        """Saves are this many times rarer than asked for."""
        self._last_step, self._last_time = 0, 0.0
        self._saved, self._took = -1, 0.0
        self._told = Told(None, "checkpoint-monitor")

    # -- what training tells -----------------------------------------------------------------------------------------

    def train_begin(self, state: TrainingState) -> None:
        from paceline.training.iterations import IterationSaver
        from paceline.training.saver import RankSaver
        from paceline.training.snapshot import Snapshot

        ranks = self._ranks or replace(Ranks.from_environment(), rank=state.rank, world_size=state.world_size)
        if self._steps <= 0 and ranks.world_size > 1:
            raise UsageError(
                f"CheckpointMonitor: {ranks.world_size} ranks cannot agree on a step by their clocks",
                hint="give save_checkpoint_steps instead of save_checkpoint_seconds",
            )
        self._told = Told(self._outputs.log(ranks.rank), "checkpoint-monitor")
        self._snapshot = Snapshot()
        self._rank_saver = RankSaver(self._directory(ranks.rank), self._prefix, ranks, self._format, self._keep)
        self._iterations = IterationSaver(self._place or self._outputs.checkpoints, self._prefix, ranks, self._keep)
        attempt = os.environ.get("PACELINE_RUN_ID") or f"from step {state.step}"
        if self._legacy:
            self._rank_saver.begin(state.step)
        else:
            self._iterations.begin(state.step, attempt)
        self._last_step, self._last_time = state.step, monotonic()

    def step_end(self, state: TrainingState) -> None:
        if not self._is_due(state):
            return
        if self._background.busy:
            self._spread *= 2
            log.warning(
                "the disk takes longer for a checkpoint than %d steps do; saving every %d steps from now on",
                self._steps * self._spread // 2, self._steps * self._spread,
            )  # fmt: skip
            return
        if self._spread > 1 and self._took * 4 < monotonic() - self._last_time:
            self._spread //= 2
        self._save(state, beside=self._async)

    def train_end(self, state: TrainingState) -> None:
        self._background.wait()
        if self._saved != state.step:
            self._save(state, beside=False)

    def train_failed(self, state: TrainingState, error: BaseException) -> None:
        self._background.wait()
        if self._on_exception and self._saved != state.step:
            self._save(state, beside=False)

    def close(self) -> None:
        self._background.wait()
        self._background.close()
        if self._raise and self._told.problem is not None:
            raise self._told.problem

    # -- saving ------------------------------------------------------------------------------------------------------

    def _is_due(self, state: TrainingState) -> bool:
        if self._steps <= 0:
            return monotonic() - self._last_time >= self._seconds
        spacing = self._steps * self._spread
        return state.step // spacing > self._last_step // spacing

    def _save(self, state: TrainingState, *, beside: bool) -> None:
        from paceline.training.saver import Moment
        from paceline.training.snapshot import hold

        moment = Moment(state.epoch if state.steps_per_epoch else 1, state.step_in_epoch, state.step)
        began = monotonic()
        try:
            weights = state.weights()
            values = self._values(state, weights)
            tensors = self._snapshot.take(values) if beside else hold(values)
        except (PacelineError, MemoryError) as error:
            problem = (
                error if isinstance(error, PacelineError) else PacelineError("no memory for a copy of the weights")
            )
            self._told.failed(problem, consequence="this checkpoint is left out, training goes on")
            return
        common, trainable = self._scalars(state), {name for name in values if state.trainable(name)}
        self._last_step, self._last_time = state.step, monotonic()
        network = set(weights)

        def work() -> None:
            try:
                place = self._write(moment, tensors, common, network, trainable)
            except (PacelineError, OSError) as error:
                problem = error if isinstance(error, PacelineError) else PacelineError(f"checkpoint: {error}")
                self._told.failed(problem, consequence="earlier checkpoints are kept, training goes on")
            else:
                self._took, self._saved = monotonic() - began, moment.global_step
                self._told.worked(step=moment.global_step, file=str(place), seconds=round(self._took, 3))

        if beside:
            self._background.start(work)
        else:
            work()

    def _write(self, moment: Any, tensors: Any, common: Scalars, weights: set[str], trainable: set[str]) -> Path:
        from paceline.checkpoint.arrays import write_file
        from paceline.training.snapshot import hold

        if not self._legacy:
            return self._iterations.save(moment, tensors, common, weights)
        own = {tensor.name for tensor in tensors}
        scalars = hold({name: value for name, value in common.items() if name not in own})
        place = self._rank_saver.save(moment, [*tensors, *scalars])
        rank = self._rank_saver.ranks.rank
        stem = f"{self._prefix}_rank_{rank}"
        if self._network:
            chosen = [tensor for tensor in tensors if tensor.name in weights]
            target = self._outputs.checkpoint_network(rank) / f"{stem}-network.{self._format}"
            write_file(target, chosen, self._format)
        if self._trainable:
            chosen = [tensor for tensor in tensors if tensor.name in weights & trainable]
            target = self._outputs.checkpoint_trainable(rank) / f"{stem}-trainable_params.{self._format}"
            write_file(target, chosen, self._format)
        return place

    def _values(self, state: TrainingState, weights: Weights) -> dict[str, Any]:
        values = dict(weights)
        if self._optimizer:
            values.update(state.optimizer_state())
        if not values:
            raise PacelineError("the training state gives no weights", hint="set TrainingState.weights")
        return values

    def _scalars(self, state: TrainingState) -> Scalars:
        found: Scalars = {
            "epoch_num": state.epoch, "step_num": state.step_in_epoch, "global_step": state.step,
            "global_batch_size": self._batch or state.global_batch_size,
        }  # fmt: skip
        if state.loss_scale is not None:
            found["loss_scale"] = float(state.loss_scale)
        return {**found, **self._append, **state.extra}

    def _directory(self, rank: int) -> Path:
        if self._place is None:
            return self._outputs.checkpoint(rank)
        place = self._place / f"rank_{rank}"
        place.mkdir(parents=True, exist_ok=True)
        return place
