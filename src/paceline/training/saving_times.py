"""When a checkpoint is due: every so many steps, or seconds; on all ranks at the same step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

from paceline.errors import UsageError
from paceline.training.state import TrainingState
from paceline.training.telling import log

_MOST_STEPS = 1_000_000


class SavingTimes(Protocol):
    def is_due(self, step: int, *, busy: bool, took: float) -> bool:
        """At the end of a step; busy: the checkpoint before is still being written; took: seconds the last one took."""
        ...


class EverySteps:
    """A disk that is too slow makes it every second time (then every fourth, …): at steps that all ranks share."""

    def __init__(self, steps: int, first: int) -> None:
        self._steps, self._last_step, self._saved = steps, first, monotonic()
        self._spread = 1
        """Saves are this many times rarer than asked for."""

    def is_due(self, step: int, *, busy: bool, took: float) -> bool:
        spacing = self._steps * self._spread
        # Not the remainder: with a sink of several steps it might never be zero.
        if step // spacing <= self._last_step // spacing:
            return False
        self._last_step = step
        if busy:
            self._spread *= 2
            log.warning(
                "the disk takes longer for a checkpoint than %d steps do; saving every %d steps from now on",
                spacing, 2 * spacing,
            )  # fmt: skip
            return False
        if self._spread > 1 and took * 4 < monotonic() - self._saved:
            self._spread //= 2
        self._saved = monotonic()
        return True


class EverySeconds:
    """By rank 0's clock. Ranks ask each other at steps they all know, rarely: each time half of the way that is left."""

    def __init__(self, seconds: float, state: TrainingState) -> None:
        if state.world_size > 1 and state.sum_over_ranks is None:
            raise UsageError(
                f"CheckpointMonitor: {state.world_size} ranks cannot agree on a step by their clocks",
                hint="give save_checkpoint_steps instead of save_checkpoint_seconds, or set TrainingState.sum_over_ranks",
            )
        self._seconds, self._rank, self._alone = seconds, state.rank, state.world_size == 1
        self._sum: Callable[[Sequence[float]], Sequence[float]] = state.sum_over_ranks or list
        self._saved = self._asked = monotonic()
        self._asked_step, self._next_step = state.step, state.step + 1
        self._said = False

    def is_due(self, step: int, *, busy: bool, took: float) -> bool:
        if step < self._next_step:
            return False
        now = monotonic()
        per_step = (now - self._asked) / (step - self._asked_step)
        left = self._seconds - (now - self._saved)
        own = [float(busy), left, per_step] if self._rank == 0 else [float(busy), 0.0, 0.0]
        busy_ranks, left, per_step = self._sum(own)
        due = left <= 0 and not busy_ranks
        if due:
            self._saved, self._said = now, False
        elif left <= 0 and busy and not self._said:
            self._said = True
            log.warning("the disk takes longer for a checkpoint than %g s; saving as soon as it can", self._seconds)
        self._asked, self._asked_step = now, step
        self._next_step = step + self._steps_to_go(self._seconds if due else left, per_step)
        return due

    def _steps_to_go(self, seconds: float, per_step: float) -> int:
        """Half of what is left, should steps become slower; the same number on every rank."""
        if self._alone or seconds <= 0:
            return 1
        return min(max(int(seconds / max(per_step, 1e-6) / 2), 1), _MOST_STEPS)
