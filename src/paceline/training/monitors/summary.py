"""SummaryMonitor: loss, learning rate, loss scale, step time as curves; TensorBoard's format where a writer is installed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from time import perf_counter, time
from typing import Protocol

from paceline.errors import UsageError
from paceline.training.monitor import Monitor
from paceline.training.outputs import OutputTree, default_root
from paceline.training.state import TrainingState
from paceline.training.telling import log


class Writer(Protocol):
    def add_scalar(self, tag: str, value: float, step: int) -> object: ...

    def flush(self) -> object: ...

    def close(self) -> object: ...


class SummaryMonitor(Monitor):
    """summary/rank_i: every `collect_freq` steps."""

    def __init__(
        self, summary_dir: str | Path | None = None, *, collect_freq: int = 10, outputs: OutputTree | None = None
    ) -> None:
        if collect_freq < 1:
            raise UsageError(f"SummaryMonitor: collect_freq {collect_freq} must be at least 1")
        self._directory, self._every = summary_dir, collect_freq
        self._outputs = outputs or OutputTree(default_root())
        self._writer: Writer | None = None
        self._last_step, self._last_time = 0, 0.0

    def train_begin(self, state: TrainingState) -> None:
        place = Path(self._directory) if self._directory else self._outputs.summary / f"rank_{state.rank}"
        place.mkdir(parents=True, exist_ok=True)
        self._writer = open_writer(place)
        self._last_step, self._last_time = state.step, perf_counter()

    def step_end(self, state: TrainingState) -> None:
        if self._writer is None or state.step // self._every <= self._last_step // self._every:
            return
        seconds = (perf_counter() - self._last_time) / (state.step - self._last_step)
        curves = {"loss": state.loss, "learning_rate": state.rate(), "loss_scale": state.loss_scale,
                  "step_time_ms": seconds * 1e3, "samples_per_second": state.batch_size / seconds,
                  **state.scalars}  # fmt: skip
        try:
            for name, value in curves.items():
                if value is not None:
                    self._writer.add_scalar(name, float(value), state.step)
            self._writer.flush()
        except OSError as error:
            log.warning("summary: %s; no more curves are written, training goes on", error)
            self._writer = None
        self._last_step, self._last_time = state.step, perf_counter()

    def close(self) -> None:
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:
                log.warning("summary: %s: its end is missing", error)
            self._writer = None


def open_writer(directory: Path) -> Writer:
    for needed, opened in _WRITERS:
        if find_spec(needed) is not None:
            return opened(directory)
    log.info("no TensorBoard writer is installed (tensorboardX): curves go to %s", directory / "scalars.jsonl")
    return JsonLines(directory / "scalars.jsonl")


class EventFile:
    """TensorBoard's format, by tensorboardX without its thread: a full disk ends that, and the next ten values block."""

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


def torch_writer(directory: Path) -> Writer:
    from torch.utils.tensorboard import SummaryWriter

    writer: Writer = SummaryWriter(str(directory))
    return writer


class JsonLines:
    """{"step": 10, "loss": 2.5, "time": …}: one value per line."""

    def __init__(self, path: Path) -> None:
        self._file: TextIOWrapper = path.open("a", encoding="utf-8", buffering=1)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self._file.write(json.dumps({"step": step, tag: value, "time": round(time(), 3)}) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


_WRITERS: Sequence[tuple[str, Callable[[Path], Writer]]] = (("tensorboardX", EventFile), ("tensorboard", torch_writer))
"""What must be installed, and who writes with it."""
