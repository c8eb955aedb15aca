"""The output tree: one place for every kind of output, the same on every host."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import PacelineError

MODELARTS_ROOT = Path("/cache/ma-user-work")
_MODELARTS = ("MA_JOB_DIR", "MA_LOG_DIR", "MA_LOCAL_LOG_PATH", "MA_VJ_NAME", "BATCH_GROUP_NAME")


def in_modelarts() -> bool:
    """By what only its containers have: keys for a bucket (S3_*) are on many machines."""
    return any(os.environ.get(name) for name in _MODELARTS)


def default_root(output_dir: str | Path | None = None) -> Path:
    """As told; else $LOCAL_DEFAULT_PATH, /cache/ma-user-work on ModelArts (its fast, large disk), ./output elsewhere."""
    told = output_dir or os.environ.get("LOCAL_DEFAULT_PATH")
    if told:
        return Path(told).absolute()
    if in_modelarts() and MODELARTS_ROOT.parent.is_dir() and os.access(MODELARTS_ROOT.parent, os.W_OK):
        return MODELARTS_ROOT
    return Path("output").absolute()


@dataclass(frozen=True)
class OutputTree:
    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))  # whoever gives it as text

    def checkpoint(self, rank: int) -> Path:
        return self._made(f"checkpoint/rank_{rank}")

    def checkpoint_network(self, rank: int) -> Path:
        """Weights without the optimizer."""
        return self._made(f"checkpoint_network/rank_{rank}")

    def checkpoint_trainable(self, rank: int) -> Path:
        return self._made(f"checkpoint_trainable/rank_{rank}")

    @property
    def checkpoints(self) -> Path:
        """Above all ranks: where resume looks, and where iteration_* directories lie."""
        return self._made("checkpoint")

    @property
    def strategy(self) -> Path:
        return self._made("strategy")

    def log(self, rank: int) -> Path:
        return self._made(f"log/rank_{rank}")

    def profile(self, rank: int) -> Path:
        return self._made(f"profile/rank_{rank}")

    @property
    def dump(self) -> Path:
        return self._made("dump")

    @property
    def summary(self) -> Path:
        return self._made("summary")

    def _made(self, name: str) -> Path:
        path = self.root / name
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PacelineError(
                f"{path}: {error.strerror}", hint="give an output_dir (or LOCAL_DEFAULT_PATH) that can be written"
            ) from error
        return path
