"""SummaryMonitor: writes loss, learning rate, loss scale and step time as TensorBoard events or JSON lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from time import perf_counter, time
from typing import Protocol

from paceline.core.errors import UsageError
from paceline.training.monitor import Monitor
from paceline.training.session.output_tree import OutputTree, default_root
from paceline.training.training_state import TrainingState

_log = logging.getLogger("paceline.training")


class ScalarWriter(Protocol):
    def add_scalar(self, tag: str, value: float, step: int) -> object: ...

    def flush(self) -> object: ...

    def close(self) -> object: ...


class SummaryMonitor(Monitor):
    """Writes to summary/rank_i every `collect_freq` steps."""

    def __init__(
        self, summary_dir: str | Path | None = None, *, collect_freq: int = 10, outputs: OutputTree | None = None
    ) -> None:
        if collect_freq < 1:
            raise UsageError(f"SummaryMonitor: collect_freq {collect_freq} must be at least 1")
        self._directory, self._every = summary_dir, collect_freq
        self._outputs = outputs or OutputTree(default_root())
        self._writer: ScalarWriter | None = None
        self._last_step, self._last_time = 0, 0.0

    def train_begin(self, state: TrainingState) -> None:
        path = Path(self._directory) if self._directory else self._outputs.summary / f"rank_{state.rank}"
        path.mkdir(parents=True, exist_ok=True)
        self._writer = open_scalar_writer(path)
        self._last_step, self._last_time = state.step, perf_counter()

    def step_end(self, state: TrainingState) -> None:
        if self._writer is None or state.step // self._every <= self._last_step // self._every:
            return
        seconds = (perf_counter() - self._last_time) / (state.step - self._last_step)
        curves = {
            "loss": state.loss,
            "learning_rate": state.rate(),
            "loss_scale": state.loss_scale,
            "step_time_ms": seconds * 1e3,
            "samples_per_second": state.batch_size / seconds,
            **state.scalars,
        }
        try:
            for name, value in curves.items():
                if value is not None:
                    self._writer.add_scalar(name, float(value), state.step)
            self._writer.flush()
        except OSError as error:
            _log.warning("summary: %s; writing stopped, training continues", error)
            self._writer = None
        self._last_step, self._last_time = state.step, perf_counter()

    def close(self) -> None:
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:
                _log.warning("summary: %s; the last values may be missing", error)
            self._writer = None


def open_scalar_writer(directory: Path) -> ScalarWriter:
    for module, open_writer in _WRITERS:
        if find_spec(module) is not None:
            return open_writer(directory)
    _log.info("no TensorBoard writer is installed (tensorboardX): writing %s", directory / "scalars.jsonl")
    return JsonLinesWriter(directory / "scalars.jsonl")


class TensorBoardWriter:
    """TensorBoard events, written with tensorboardX without its thread, which dies when the disk is full and then blocks."""

    def __init__(self, directory: Path) -> None:
        events, summary = (import_module(f"tensorboardX.{name}") for name in ("event_file_writer", "summary"))
        self._writer = events.EventsWriter(str(directory / "events"))
        self._event = import_module("tensorboardX.proto.event_pb2").Event
        self._scalar = summary.scalar

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self._writer.write_event(self._event(wall_time=time(), step=step, summary=self._scalar(tag, value)))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def open_torch_writer(directory: Path) -> ScalarWriter:
    from torch.utils.tensorboard import SummaryWriter

    writer: ScalarWriter = SummaryWriter(str(directory))
    return writer


class JsonLinesWriter:
    """{"step": 10, "loss": 2.5, "time": …}: one value per line."""

    def __init__(self, path: Path) -> None:
        self._file: TextIOWrapper = path.open("a", encoding="utf-8", buffering=1)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self._file.write(json.dumps({"step": step, tag: value, "time": round(time(), 3)}) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


_WRITERS: Sequence[tuple[str, Callable[[Path], ScalarWriter]]] = (
    ("tensorboardX", TensorBoardWriter),
    ("tensorboard", open_torch_writer),
)
"""Module that must be installed → writer."""
