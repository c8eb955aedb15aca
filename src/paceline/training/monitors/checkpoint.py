"""CheckpointMonitor: saves weights, optimizer and progress; atomically, beside training, old ones pruned last."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from paceline.errors import PacelineError, UsageError
from paceline.training.background import Background
from paceline.training.monitor import Monitor
from paceline.training.outputs import OutputTree, default_root
from paceline.training.ranks import Ranks
from paceline.training.state import TrainingState, Weights
from paceline.training.telling import Told, log

if TYPE_CHECKING:
    from paceline.checkpoint.arrays import HeldTensor
    from paceline.training.iterations import IterationSaver
    from paceline.training.saver import Moment

Scalars = dict[str, int | float]
_FOR_OTHERS = 15.0
"""Seconds after a failure."""


class CheckpointMonitor(Monitor):
    """Every `save_checkpoint_steps` steps (or `save_checkpoint_seconds` seconds) and at the end.

    With async_save the loop only waits for a copy in memory. If the disk is slower than that, saves are left out at
    steps all ranks agree on, so that some step is always complete everywhere.
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
            raise UsageError(f"CheckpointMonitor: prefix {prefix!r} cannot be part of a file's name")
        if checkpoint_format not in ("ckpt", "safetensors"):
            raise UsageError(
                f"CheckpointMonitor: checkpoint_format {checkpoint_format!r}", hint="known: ckpt, safetensors"
            )
        if save_checkpoint_seconds > 0 and not by_clock:
            log.warning("CheckpointMonitor: save_checkpoint_steps is given: save_checkpoint_seconds has no effect")
        self._prefix, self._steps, self._seconds = prefix, 0 if by_clock else steps, save_checkpoint_seconds
        self._keep, self._async, self._format = keep_checkpoint_max, bool(async_save), checkpoint_format
        self._network, self._trainable, self._optimizer = save_network_params, save_trainable_params, save_optimizer
        self._legacy, self._on_exception = use_legacy_format, exception_save
        self._batch, self._append, self._raise = global_batch_size, dict(append_info or {}), raise_failures
        # integrated_save gathers slices: what a rank is given here is what it saves, whole or a slice.
        self._outputs = outputs or OutputTree(default_root())
        self._place = Path(directory).absolute() if directory else None
        self._ranks = ranks
        self._background = Background("paceline-checkpoint")
        self._prepared = self._ended = False
        self._iterations: IterationSaver | None = None
        self._saved, self._took = -1, 0.0
        self._told = Told(None, "checkpoint-monitor")

    # -- what training tells -----------------------------------------------------------------------------------------

    def train_begin(self, state: TrainingState) -> None:
        from paceline.training.iterations import IterationSaver
        from paceline.training.saver import RankSaver
        from paceline.training.saving_times import EverySeconds, EverySteps, SavingTimes
        from paceline.training.snapshot import Snapshot

        ranks = self._ranks or replace(Ranks.from_environment(), rank=state.rank, world_size=state.world_size)
        self._times: SavingTimes = (
            EverySteps(self._steps, state.step) if self._steps else EverySeconds(self._seconds, state)
        )
        self._told = Told(self._outputs.log(ranks.rank), "checkpoint-monitor")
        self._snapshot = Snapshot()
        attempt = os.environ.get("PACELINE_RUN_ID") or f"from step {state.step}"
        if self._legacy:
            self._rank_saver = RankSaver(self._directory(ranks.rank), self._prefix, ranks, self._format, self._keep)
            self._rank_saver.begin(state.step, attempt)
        else:
            self._iterations = IterationSaver(self._place or self._outputs.checkpoints, self._prefix, ranks, self._keep)
            self._iterations.begin(attempt)

    def step_end(self, state: TrainingState) -> None:
        if self._times.is_due(state.step, busy=self._background.busy, took=self._took):
            self._save(state, beside=self._async)
        elif self._async and not self._prepared:
            self._prepare(state)

    def train_end(self, state: TrainingState) -> None:
        self._ended = True
        self._background.wait()
        if self._saved != state.step:
            self._save(state, beside=False)

    def train_failed(self, state: TrainingState, error: BaseException) -> None:
        self._hurry()
        self._background.wait()
        if self._on_exception and self._saved != state.step:
            self._save(state, beside=False)

    def close(self) -> None:
        if not self._ended:
            self._hurry()
        self._background.wait()
        self._background.close()
        if self._raise and self._told.problem is not None:
            raise self._told.problem

    def _hurry(self) -> None:
        """Ranks that died never finish their part: what is complete must still come home."""
        if self._iterations is not None:
            self._iterations.hurry(_FOR_OTHERS)

    # -- saving ------------------------------------------------------------------------------------------------------

    def _prepare(self, state: TrainingState) -> None:
        """After the first step, when the optimizer's state is there too."""
        self._prepared = True
        self._snapshot.prepare({**state.weights(), **(state.optimizer_state() if self._optimizer else {})})

    def _save(self, state: TrainingState, *, beside: bool) -> None:
        from paceline.training.saver import Moment

        moment = Moment(state.epoch if state.steps_per_epoch else 1, state.step_in_epoch, state.step)
        began = monotonic()
        try:
            taken = self._take(state, copied=beside)
        except (PacelineError, MemoryError) as error:
            problem = (
                error if isinstance(error, PacelineError) else PacelineError("no memory for a copy of the weights")
            )
            self._told.failed(problem, consequence="this checkpoint is left out, training goes on")
            return
        work = partial(self._write, moment, taken, began)
        if beside:
            self._background.start(work)
        else:
            work()

    def _take(self, state: TrainingState, *, copied: bool) -> _Taken:
        from paceline.training.snapshot import hold

        weights = state.weights()
        values = self._values(state, weights)
        tensors = self._snapshot.take(values) if copied else hold(values)
        trainable = {name for name in weights if state.trainable(name)}
        return _Taken(tensors, self._scalars(state), set(weights), trainable)

    def _write(self, moment: Moment, taken: _Taken, began: float) -> None:
        """In the training loop, or beside it."""
        try:
            if self._iterations is not None:
                place = self._iterations.save(moment, taken.tensors, taken.scalars, taken.weights)
            else:
                place = self._write_files(moment, taken)
        except (PacelineError, OSError) as error:
            problem = error if isinstance(error, PacelineError) else PacelineError(f"checkpoint: {error}")
            self._told.failed(problem, consequence="earlier checkpoints are kept, training goes on")
        else:
            self._took, self._saved = monotonic() - began, moment.global_step
            self._told.worked(step=moment.global_step, file=str(place), seconds=round(self._took, 3))

    def _write_files(self, moment: Moment, taken: _Taken) -> Path:
        from paceline.checkpoint.arrays import write_file
        from paceline.training.snapshot import hold

        own = {tensor.name for tensor in taken.tensors}
        scalars = hold({name: value for name, value in taken.scalars.items() if name not in own})
        place = self._rank_saver.save(moment, [*taken.tensors, *scalars])
        rank = self._rank_saver.ranks.rank
        stem = f"{self._prefix}_rank_{rank}"
        if self._network:
            target = self._outputs.checkpoint_network(rank) / f"{stem}-network.{self._format}"
            write_file(target, taken.of(taken.weights), self._format)
        if self._trainable:
            target = self._outputs.checkpoint_trainable(rank) / f"{stem}-trainable_params.{self._format}"
            write_file(target, taken.of(taken.trainable), self._format)
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


@dataclass(frozen=True)
class _Taken:
    """What goes into one checkpoint."""

    tensors: Sequence[HeldTensor]
    scalars: Scalars
    weights: Set[str]
    """Names of the model's own; the others are the optimizer's."""
    trainable: Set[str]

    def of(self, names: Set[str]) -> list[HeldTensor]:
        return [tensor for tensor in self.tensors if tensor.name in names]
