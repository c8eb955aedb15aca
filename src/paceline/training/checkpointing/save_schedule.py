"""When to save a checkpoint: every N steps or seconds, at the same step on all ranks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

from paceline.core.errors import UsageError
from paceline.training.training_state import TrainingState

_log = logging.getLogger("paceline.training")

_MOST_STEPS = 1_000_000


class SaveSchedule(Protocol):
    def is_due(self, step: int, *, busy: bool, took: float) -> bool:
        """Called at the end of a step. busy: the previous save is still running; took: seconds of the last save."""
        ...


class EverySteps:
    """If the disk is too slow, saves every second time (then every fourth, …), at the same steps on all ranks."""

    def __init__(self, steps: int, first: int) -> None:
        self._steps, self._last_step, self._saved = steps, first, monotonic()
        self._spread = 1
        """Save only every `_spread`-th time."""

    def is_due(self, step: int, *, busy: bool, took: float) -> bool:
        spacing = self._steps * self._spread
        # Not `step % spacing == 0`: with data sinking, steps may skip the multiples.
        if step // spacing <= self._last_step // spacing:
            return False
        self._last_step = step
        if busy:
            self._spread *= 2
            _log.warning(
                "saving a checkpoint takes longer than %d steps; saving every %d steps from now on",
                spacing,
                2 * spacing,
            )
            return False
        if self._spread > 1 and took * 4 < monotonic() - self._saved:
            self._spread //= 2
        self._saved = monotonic()
        return True


class EverySeconds:
    """By rank 0's clock. Ranks synchronise rarely, at agreed steps: each time after half of the remaining time."""

    def __init__(self, seconds: float, state: TrainingState) -> None:
        if state.world_size > 1 and state.sum_over_ranks is None:
            raise UsageError(
                f"CheckpointMonitor: {state.world_size} ranks cannot agree on a step without communication",
                hint="set save_checkpoint_steps instead of save_checkpoint_seconds, or set TrainingState.sum_over_ranks",
            )
        self._seconds, self._rank, self._single = seconds, state.rank, state.world_size == 1
        self._sum: Callable[[Sequence[float]], Sequence[float]] = state.sum_over_ranks or list
        self._saved = self._synced = monotonic()
        self._synced_step, self._next_step = state.step, state.step + 1
        self._warned = False

    def is_due(self, step: int, *, busy: bool, took: float) -> bool:
        if step < self._next_step:
            return False
        now = monotonic()
        per_step = (now - self._synced) / (step - self._synced_step)
        left = self._seconds - (now - self._saved)
        own = [float(busy), left, per_step] if self._rank == 0 else [float(busy), 0.0, 0.0]
        busy_ranks, left, per_step = self._sum(own)
        due = left <= 0 and not busy_ranks
        if due:
            self._saved, self._warned = now, False
        elif left <= 0 and busy and not self._warned:
            self._warned = True
            _log.warning("saving a checkpoint takes longer than %g s; saving again when it is done", self._seconds)
        self._synced, self._synced_step = now, step
        self._next_step = step + self._steps_until_sync(self._seconds if due else left, per_step)
        return due

    def _steps_until_sync(self, seconds: float, per_step: float) -> int:
        """Steps until the next synchronisation: half of the remaining time, in case steps become slower."""
        if self._single or seconds <= 0:
            return 1
        return min(max(int(seconds / max(per_step, 1e-6) / 2), 1), _MOST_STEPS)
