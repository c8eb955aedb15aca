"""RecorderMonitor: the light recorder as an entry of `callbacks:`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.training.monitor import Monitor
from paceline.training.session.output_tree import OutputTree, default_root
from paceline.training.training_state import TrainingState

if TYPE_CHECKING:
    from paceline.recorder import Recorder


class RecorderMonitor(Monitor):
    """Records every step below recording/ of the outputs; `options` are those of paceline.recorder.Recorder."""

    def __init__(
        self, output_dir: str | Path | None = None, *, outputs: OutputTree | None = None, **options: Any
    ) -> None:
        outputs = outputs or OutputTree(default_root())
        self._directory = Path(output_dir) if output_dir else outputs.root / "recording"
        self._options = options
        self._recorder: Recorder | None = None

    def train_begin(self, state: TrainingState) -> None:
        from paceline.recorder import Recorder

        options = {"rank": state.rank, "world_size": state.world_size, "first_step": state.step + 1, **self._options}
        self._recorder = Recorder(self._directory, **options).start()

    def step_end(self, state: TrainingState) -> None:
        if self._recorder is not None:
            self._recorder.step()

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None
