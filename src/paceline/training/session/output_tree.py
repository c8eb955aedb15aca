"""OutputTree: one directory per kind of output, the same on every host."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import PacelineError

MODELARTS_ROOT = Path("/cache/ma-user-work")
_MODELARTS = ("MA_JOB_DIR", "MA_LOG_DIR", "MA_LOCAL_LOG_PATH", "MA_VJ_NAME", "BATCH_GROUP_NAME")


def in_modelarts() -> bool:
    """Checks variables that only ModelArts containers have; S3_* credentials exist on many machines."""
    return any(os.environ.get(name) for name in _MODELARTS)


def default_root(output_dir: str | Path | None = None) -> Path:
    """output_dir if given; else $LOCAL_DEFAULT_PATH, /cache/ma-user-work on ModelArts (its fast, large disk), ./output."""
    given = output_dir or os.environ.get("LOCAL_DEFAULT_PATH")
    if given:
        return Path(given).absolute()
    if in_modelarts() and MODELARTS_ROOT.parent.is_dir() and os.access(MODELARTS_ROOT.parent, os.W_OK):
        return MODELARTS_ROOT
    return Path("output").absolute()


@dataclass(frozen=True)
class OutputTree:
    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))  # may be given as text

    def checkpoint(self, rank: int) -> Path:
        return self._make(f"checkpoint/rank_{rank}")

    def checkpoint_network(self, rank: int) -> Path:
        """Weights without the optimizer."""
        return self._make(f"checkpoint_network/rank_{rank}")

    def checkpoint_trainable(self, rank: int) -> Path:
        return self._make(f"checkpoint_trainable/rank_{rank}")

    @property
    def checkpoints(self) -> Path:
        """Parent of all ranks' directories and of iteration_*; resume searches here."""
        return self._make("checkpoint")

    @property
    def strategy(self) -> Path:
        return self._make("strategy")

    def log(self, rank: int) -> Path:
        return self._make(f"log/rank_{rank}")

    def profile(self, rank: int) -> Path:
        return self._make(f"profile/rank_{rank}")

    @property
    def dump(self) -> Path:
        return self._make("dump")

    @property
    def summary(self) -> Path:
        return self._make("summary")

    def _make(self, name: str) -> Path:
        path = self.root / name
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PacelineError(
                f"{path}: {error.strerror}", hint="set output_dir (or LOCAL_DEFAULT_PATH) to a writable directory"
            ) from error
        return path
