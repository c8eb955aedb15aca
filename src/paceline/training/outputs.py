"""The output tree: one place for every kind of output, the same on every host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.errors import PacelineError


@dataclass(frozen=True)
class OutputTree:
    root: Path

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
