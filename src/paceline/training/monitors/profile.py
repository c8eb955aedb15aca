"""ProfileMonitor: profiles steps with paceline.profiling into profile/rank_i (`profile: True` in a YAML file)."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.training.monitor import Monitor
from paceline.training.session.output_tree import OutputTree, default_root
from paceline.training.training_state import TrainingState

if TYPE_CHECKING:
    from paceline.profiling import Profiler

_log = logging.getLogger("paceline.training")


class ProfileMonitor(Monitor):
    """Records the global steps start_step … stop_step, both included, counted from 1."""

    def __init__(
        self,
        start_step: int = 1,
        stop_step: int = 10,
        output_path: str | Path | None = None,
        *,
        profile_rank_ids: Collection[int] | None = None,
        outputs: OutputTree | None = None,
        **options: Any,
    ) -> None:
        if start_step < 1 or stop_step < start_step:
            _log.warning(
                "invalid profile_start_step %s or profile_stop_step %s: recording steps 1 to 10", start_step, stop_step
            )
            start_step, stop_step = 1, 10
        self._first, self._last, self._ranks = start_step, stop_step, profile_rank_ids
        self._path, self._outputs, self._options = output_path, outputs or OutputTree(default_root()), options
        self._profiler: Profiler | None = None

    def train_begin(self, state: TrainingState) -> None:
        from paceline.profiling import Profiler

        path = self._path or self._outputs.profile(state.rank)
        if state.step >= self._last:
            _log.warning("profile: training starts after step %d: nothing is recorded", self._last)
            return
        self._profiler = Profiler(
            start_step=self._first, stop_step=self._last, output_path=str(path), ranks=self._ranks, **self._options
        )

    def step_begin(self, state: TrainingState) -> None:
        if self._profiler is not None:
            self._profiler.begin_step(state.step + 1)

    def step_end(self, state: TrainingState) -> None:
        if self._profiler is not None:
            self._profiler.end_step(state.step)
            if state.step >= self._last:
                self.close()

    def close(self) -> None:
        if self._profiler is not None:
            self._profiler.end_training()
            self._profiler = None
