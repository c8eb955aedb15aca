"""Select one of several checkpoints in a directory: the newest by number that every rank has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.checkpoint.file_names import STEP, Step, natural_key, step_of
from paceline.core.errors import PacelineError, UsageError

_SHOWN_RANKS = 8


@dataclass(frozen=True)
class SelectedStep:
    files: dict[int, str]
    """Rank → file."""
    notes: tuple[str, ...] = ()
    """What the user should know about the selection."""


def parse_step(text: str) -> Step:
    match = STEP.fullmatch("-" + text.lstrip("-"))
    if not match:
        raise UsageError(f"{text}: invalid checkpoint step", hint="EPOCH_STEP as in the file names, for example 10_1")
    return int(match[1]), int(match[2])


def select_step(ranks: Mapping[int, Sequence[str]], wanted: Step | None) -> SelectedStep:
    """One file per rank: of the wanted (epoch, step), or of the newest that every rank has.

    >>> select_step({0: ["a-2_1.ckpt", "a-10_1.ckpt"]}, None).files
    {0: 'a-10_1.ckpt'}
    """
    _check_one_format(ranks)
    steps = {rank: {step for key in keys if (step := step_of(key))} for rank, keys in ranks.items()}
    if wanted is not None:
        _check_present(steps, wanted)
        return SelectedStep(_files_of_step(ranks, wanted))
    if not any(steps.values()):
        return SelectedStep({rank: max(keys, key=natural_key) for rank, keys in ranks.items()})
    newest = _newest_complete(steps)
    return SelectedStep(_files_of_step(ranks, newest), _notes(steps, newest))


def _check_one_format(ranks: Mapping[int, Sequence[str]]) -> None:
    for rank, keys in ranks.items():
        formats = {key.rpartition(".")[2] for key in keys}
        if len(formats) > 1:
            raise PacelineError(
                f"rank {rank}: holds {' and '.join(sorted(formats))} files", hint="keep one format per directory"
            )


def _check_present(steps: Mapping[int, set[Step]], wanted: Step) -> None:
    missing = [rank for rank, has in steps.items() if wanted not in has]
    if missing:
        raise PacelineError(f"rank {missing[0]}: checkpoint {_text(wanted)} not found")


def _newest_complete(steps: Mapping[int, set[Step]]) -> Step:
    common = set.intersection(*steps.values())
    if not common:
        newest = [f"rank {rank} has {_text(max(has)) if has else 'none'}" for rank, has in list(steps.items())[:4]]
        raise PacelineError(
            f"no checkpoint exists for every rank: {', '.join(newest)}",
            hint="if training was stopped during a save, remove the incomplete checkpoints",
        )
    return max(common)


def _notes(steps: Mapping[int, set[Step]], step: Step) -> tuple[str, ...]:
    newer = [rank for rank, has in steps.items() if max(has) > step]
    if not newer:
        return ()
    ranks = ", ".join(map(str, newer[:_SHOWN_RANKS])) + (" …" if len(newer) > _SHOWN_RANKS else "")
    return (f"using checkpoint {_text(step)}: newer ones are incomplete (only ranks {ranks} have them)",)


def _files_of_step(ranks: Mapping[int, Sequence[str]], step: Step) -> dict[int, str]:
    return {rank: max((key for key in keys if step_of(key) == step), key=natural_key) for rank, keys in ranks.items()}


def _text(step: Step) -> str:
    return f"{step[0]}_{step[1]}"
