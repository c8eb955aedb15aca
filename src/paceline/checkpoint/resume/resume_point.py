"""Find the checkpoint to resume from: the newest that is complete and intact on every rank, and why newer ones are not.

Two layouts: rank_i/{prefix}_rank_{i}-{epoch}_{step}.ckpt with a meta.json each (rank_candidates.py), and
iteration_%08d/ with latest_checkpointed_iteration.txt (iteration_candidates.py). Intact means: size and checksum are as
recorded by the saver, or, if nothing was recorded, the structure can be read from start to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.checkpoint.integrity import IntegrityCheck
from paceline.checkpoint.resume import iteration_candidates, rank_candidates
from paceline.checkpoint.tensor_files import FileListing, open_listing
from paceline.core.errors import PacelineError

_SHOWN = 6


@dataclass(frozen=True)
class SkippedCheckpoint:
    """A checkpoint that cannot be resumed from, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class ResumePoint:
    location: str
    """`files` are relative to this."""
    layout: str
    """"rank" or "iteration"."""
    epoch: int
    step: int
    """Within the epoch, as in the file's name."""
    global_step: int | None
    files: Mapping[int, tuple[str, ...]]
    """Rank → keys below the location (iteration: model and optimizer files)."""
    skipped: tuple[SkippedCheckpoint, ...]
    notes: tuple[str, ...] = ()


class Candidate(Protocol):
    """A checkpoint that may be complete."""

    @property
    def name(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def global_step(self) -> int | None:
        """Set by problems() if there are none."""
        ...

    @property
    def files(self) -> Mapping[int, tuple[str, ...]]: ...

    def problems(self, check: IntegrityCheck) -> list[str]:
        """Why it cannot be used; empty when it can."""
        ...


def find_resume_point(location: str | Path, *, ranks: int | None = None, full: bool = False) -> ResumePoint:
    """Find the newest checkpoint that is complete and intact; raises PacelineError if there is none.

    ranks: number of ranks that must be present (default: as recorded in the checkpoint)
    full: read file contents when the bucket cannot report a checksum
    """
    with open_listing(str(location)) as listing:
        keys = [listing.single] if listing.single else list(listing.items)
        base = _base(keys)
        check = IntegrityCheck(listing, full)
        if iteration_candidates.has_iterations(keys, base):
            found: Iterable[Candidate] = iteration_candidates.candidates(listing, base, ranks, check)
            return _first(listing, "iteration", found, check)
        return _first(listing, "rank", rank_candidates.candidates(listing, base, ranks, check), check)


def _first(listing: FileListing, layout: str, candidates: Iterable[Candidate], check: IntegrityCheck) -> ResumePoint:
    skipped: list[SkippedCheckpoint] = []
    for candidate in candidates:
        problems = candidate.problems(check)
        if not problems:
            return ResumePoint(
                listing.url,
                layout,
                candidate.epoch,
                candidate.step,
                candidate.global_step,
                dict(candidate.files),
                tuple(skipped),
                tuple(check.notes),
            )
        skipped.append(SkippedCheckpoint(candidate.name, "; ".join(problems[:3])))
    if not skipped:
        raise PacelineError(f"{listing.url}: no checkpoint found", hint="pass the checkpoint directory or its parent")
    reasons = [f"  {each.name}: {each.reason}" for each in skipped[:_SHOWN]]
    if len(skipped) > _SHOWN:
        reasons.append(f"  … and {len(skipped) - _SHOWN} more")
    raise PacelineError(
        "\n".join([f"{listing.url}: no checkpoint is complete and intact on every rank", *reasons]),
        hint="start from scratch, or pass a file to load_checkpoint",
    )


def _base(keys: Iterable[str]) -> str:
    """Key prefix: "checkpoint/" if an output tree was given, else empty."""
    tops = {key.partition("/")[0] for key in keys if "/" in key}
    if any(top.startswith(("rank_", "iteration_")) for top in tops) or "checkpoint" not in tops:
        return ""
    return "checkpoint/"
