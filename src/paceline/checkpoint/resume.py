"""Which checkpoint to resume from: the newest that is complete and intact on every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that was not chosen, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class ResumePoint:
    location: str
    layout: str
    """"rank" (rank_i/…-EPOCH_STEP.ckpt and meta.json) or "iteration" (iteration_%08d and a tracker)."""
    epoch: int
    step: int
    """Within the epoch, as in the file's name."""
    global_step: int | None
    files: Mapping[int, tuple[str, ...]]
    """Rank → keys below the location (iteration: model and optimizer files)."""
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...] = ()


def find_resume_point(location: str | Path, *, ranks: int | None = None, full: bool = False) -> ResumePoint:
    """PacelineError when there is none; ranks: how many must be there (default: what the checkpoint says of itself)."""
    raise NotImplementedError
