"""ProfileMonitor: `profile: True` of a YAML file; records steps with paceline.profiling into profile/rank_i."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.training.monitor import Monitor
from paceline.training.outputs import OutputTree, default_root
from paceline.training.state import TrainingState
from paceline.training.telling import log

if TYPE_CHECKING:
    from paceline.profiling import Profiler


class ProfileMonitor(Monitor):
    """Steps start_step … stop_step, both included and counted from 1, as the whole training counts them."""

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
            log.warning(
                "profile_start_step %s and profile_stop_step %s: steps 1 to 10 are recorded", start_step, stop_step
            )
            start_step, stop_step = 1, 10
        self._first, self._last, self._ranks = start_step, stop_step, profile_rank_ids
        self._path, self._outputs, self._options = output_path, outputs or OutputTree(default_root()), options
        self._profiler: Profiler | None = None

    def train_begin(self, state: TrainingState) -> None:
        from paceline.profiling import Profiler

        place = self._path or self._outputs.profile(state.rank)
        if state.step >= self._last:
            log.warning("profile: training begins after step %d: nothing is recorded", self._last)
            return
        self._profiler = Profiler(
            start_step=self._first, stop_step=self._last, output_path=str(place), ranks=self._ranks, **self._options
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
