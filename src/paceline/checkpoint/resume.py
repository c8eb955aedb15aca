"""Which checkpoint to resume from: the newest that is complete and intact on every rank, and why newer ones are not.

Two layouts: rank_i/{prefix}_rank_{i}-{epoch}_{step}.ckpt with a meta.json each (resume_ranks.py), and
iteration_%08d/ with latest_checkpointed_iteration.txt (resume_iterations.py). Intact means: size and checksum as
recorded beside it, or, where nothing was recorded, a structure that can be read from start to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.checkpoint import resume_iterations, resume_ranks
from paceline.checkpoint.files import Place, opened
from paceline.checkpoint.intact import Inspection
from paceline.errors import PacelineError

_SHOWN = 6


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that was not chosen, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class ResumePoint:
    location: str
    """What `files` are relative to."""
    layout: str
    """"rank" or "iteration"."""
    epoch: int
    step: int
    """Within the epoch, as in the file's name."""
    global_step: int | None
    files: Mapping[int, tuple[str, ...]]
    """Rank → keys below the location (iteration: model and optimizer files)."""
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...] = ()


class Candidate(Protocol):
    """A checkpoint that may be whole."""

    @property
    def name(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def global_step(self) -> int | None:
        """Known when no problem was found."""
        ...

    @property
    def files(self) -> Mapping[int, tuple[str, ...]]: ...

    def problems(self, inspection: Inspection) -> list[str]:
        """Why it cannot be used; empty when it can."""
        ...


def find_resume_point(location: str | Path, *, ranks: int | None = None, full: bool = False) -> ResumePoint:
    """PacelineError when there is none. ranks: how many must be there (default: what the checkpoint says of itself);
    full: contents are read where a bucket cannot tell their checksum."""
    with opened(str(location)) as place:
        keys = [place.single] if place.single else list(place.items)
        base = _base(keys)
        inspection = Inspection(place, full)
        if resume_iterations.is_there(keys, base):
            found: Iterable[Candidate] = resume_iterations.candidates(place, base, ranks, inspection)
            return _first(place, "iteration", found, inspection)
        return _first(place, "rank", resume_ranks.candidates(place, base, ranks, inspection), inspection)


def _first(place: Place, layout: str, candidates: Iterable[Candidate], inspection: Inspection) -> ResumePoint:
    skipped: list[Skipped] = []
    for candidate in candidates:
        problems = candidate.problems(inspection)
        if not problems:
            return ResumePoint(
                place.url, layout, candidate.epoch, candidate.step, candidate.global_step, dict(candidate.files),
                tuple(skipped), tuple(inspection.notes),
            )  # fmt: skip
        skipped.append(Skipped(candidate.name, "; ".join(problems[:3])))
    if not skipped:
        raise PacelineError(f"{place.url}: holds no checkpoint", hint="give the checkpoint directory, or the one above")
    told = [f"  {each.name}: {each.reason}" for each in skipped[:_SHOWN]]
    if len(skipped) > _SHOWN:
        told.append(f"  … and {len(skipped) - _SHOWN} more")
    raise PacelineError(
        "\n".join([f"{place.url}: no checkpoint is complete and intact on every rank", *told]),
        hint="start from scratch, or from a file you trust (load_checkpoint)",
    )


def _base(keys: Iterable[str]) -> str:
    """ "checkpoint/" where an output tree was given, "" otherwise."""
    tops = {key.partition("/")[0] for key in keys if "/" in key}
    if any(top.startswith(("rank_", "iteration_")) for top in tops) or "checkpoint" not in tops:
        return ""
    return "checkpoint/"
