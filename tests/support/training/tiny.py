"""A model and a text so small that thirty steps take a second; and a monitor that stops a run at a known step."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import yaml

from paceline.training.monitor import Monitor
from paceline.training.runner.entrypoint import DEFAULT_CONFIG
from paceline.training.training_state import TrainingState

TESTS = Path(__file__).parents[2]


def import_path() -> str:
    """PYTHONPATH for a child process that imports test support modules."""
    return os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))


def write_text(path: Path, size: int = 2600) -> Path:
    path.write_bytes(
        (b"the slowest rider sets the pace of the line; find the stone in the shoe. " * (size // 70 + 1))[:size]
    )
    return path


def write_config(path: Path, **changes: Any) -> Path:
    """The shipped config with a smaller model."""
    values = yaml.safe_load(DEFAULT_CONFIG.read_text())
    values["model"]["model_config"] |= {"seq_length": 16, "hidden_size": 16, "num_layers": 1, "num_heads": 2}
    values["runner_config"] |= {"batch_size": 2, "epochs": 3}
    values["train_dataset"]["data_loader"]["num_samples"] = 80  # 10 steps of 4 ranks × 2
    values["callbacks"][1] |= {"save_checkpoint_steps": 5, "keep_checkpoint_max": 4}
    values["callbacks"][2] |= {"step_upload_frequence": 5}
    values |= changes
    path.write_text(yaml.safe_dump(values))
    return path


class HoldAt(Monitor):
    """Stops after a step until it is killed, so that "killed at step 17" is deterministic."""

    def __init__(self, step: int, flag: str) -> None:
        self._step, self._flag = step, flag

    def step_end(self, state: TrainingState) -> None:
        if state.step == self._step:
            Path(f"{self._flag}.{state.rank}").write_text(str(os.getpid()))
            time.sleep(600)


class Paced(Monitor):
    """Steps of `seconds`; stops at `hold_at` until a file exists."""

    def __init__(self, seconds: float, until: str, hold_at: int) -> None:
        self._seconds, self._until, self._hold_at = seconds, Path(until), hold_at

    def step_end(self, state: TrainingState) -> None:
        over = time.monotonic() + (600 if state.step >= self._hold_at else self._seconds)
        while time.monotonic() < over and not self._until.exists():
            time.sleep(0.05)
