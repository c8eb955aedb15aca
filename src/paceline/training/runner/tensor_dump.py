"""Dump tensors of selected steps for torch, as configured by MINDSPORE_DUMP_CONFIG (MindSpore does this itself).

{path}/rank_{rank}/{net_name}/0/{iteration}/{Module}.{name}.0.0.{time}.output.0.DefaultFormat.npy
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.errors import UsageError
from paceline.training.monitor import Monitor
from paceline.training.training_state import TrainingState

VARIABLE = "MINDSPORE_DUMP_CONFIG"


@dataclass(frozen=True)
class DumpSettings:
    path: Path
    net_name: str
    iterations: tuple[range, ...] | None
    """Iterations to dump, counted from 0; None: all."""
    devices: tuple[int, ...] | None

    def wants(self, iteration: int, device: int) -> bool:
        selected = self.iterations is None or any(iteration in each for each in self.iterations)
        return selected and (self.devices is None or device in self.devices)


def dump_settings() -> DumpSettings | None:
    """Settings from the file that the variable names; None if it is not set."""
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    try:
        common = json.loads(Path(name).read_text())["common_dump_settings"]
        devices = common.get("support_device")
        return DumpSettings(
            Path(common["path"]),
            str(common.get("net_name", "Net")),
            _iterations(str(common.get("iteration", "all"))),
            tuple(int(each) for each in devices) if devices is not None else None,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{VARIABLE}={name}: invalid dump config ({error})",
            hint='expected {"common_dump_settings": {"path": "/abs", "net_name": "Gpt2", "iteration": "0|5-8"}}',
        ) from error


class TensorDump(Monitor):
    """Writes the output of every module in the forward pass of the selected steps."""

    def __init__(self, settings: DumpSettings, model: Any, device: int) -> None:
        self._settings, self._device = settings, device
        self._directory: Path | None = None
        self._hooks = [
            module.register_forward_hook(partial(self._save, f"{type(module).__name__}.{name.replace('.', '_')}"))
            for name, module in model.named_modules()
            if name
        ]

    def step_begin(self, state: TrainingState) -> None:
        settings = self._settings
        self._directory = None
        if settings.wants(state.step, self._device):
            self._directory = settings.path / f"rank_{state.rank}" / settings.net_name / "0" / str(state.step)
            self._directory.mkdir(parents=True, exist_ok=True)

    def step_end(self, state: TrainingState) -> None:
        self._directory = None

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _save(self, name: str, module: Any, inputs: Any, output: Any) -> None:
        if self._directory is not None:
            moment = time.time_ns() // 1000
            np.save(self._directory / f"{name}.0.0.{moment}.output.0.DefaultFormat.npy", output.detach().numpy())


def _iterations(text: str) -> tuple[range, ...] | None:
    """
    >>> _iterations("0|5-8")
    (range(0, 1), range(5, 9))
    """
    if text == "all":
        return None
    pairs = (part.partition("-") for part in text.split("|"))
    return tuple(range(int(first), int(last or first) + 1) for first, _, last in pairs)
