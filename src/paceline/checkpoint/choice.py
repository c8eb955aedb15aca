"""Which of several checkpoints in a directory: the newest by its numbers, not by its letters."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from paceline.checkpoint.containers import SUFFIXES
from paceline.errors import PacelineError, UsageError

Step = tuple[int, int]
_STEP = re.compile(r"-(\d{1,9})_(\d{1,12})$")
_RANK = re.compile(r"rank_(\d{1,7})/([^/]+)")


def rank_files(keys: Collection[str]) -> dict[int, list[str]]:
    """Files below rank_N directories."""
    found: dict[int, list[str]] = {}
    for key in keys:
        match = _RANK.fullmatch(key)
        if match and is_weights(match[2]):
            found.setdefault(int(match[1]), []).append(key)
    return dict(sorted(found.items()))


def is_weights(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".")


def parse_step(text: str) -> Step:
    match = _STEP.fullmatch("-" + text.lstrip("-"))
    if not match:
        raise UsageError(f"{text}: is no checkpoint's number", hint="EPOCH_STEP as in file names, for example 10_1")
    return int(match[1]), int(match[2])


def choose(ranks: Mapping[int, list[str]], wanted: Step | None) -> tuple[dict[int, str], list[str]]:
    """One file per rank: the newest (epoch, step) that every rank has; and what to say about it.

    >>> choose({0: ["a-2_1.ckpt", "a-10_1.ckpt"]}, None)[0]
    {0: 'a-10_1.ckpt'}
    """
    for rank, keys in ranks.items():
        kinds = {key.rpartition(".")[2] for key in keys}
        if len(kinds) > 1:
            raise PacelineError(
                f"rank {rank}: holds {' and '.join(sorted(kinds))} files", hint="keep one kind in the directory"
            )
    steps = {rank: {step for key in keys if (step := step_of(key))} for rank, keys in ranks.items()}
    if wanted is None and not any(steps.values()):
        return {rank: _last(rank, keys) for rank, keys in ranks.items()}, []
    common = set.intersection(*steps.values())
    if wanted is not None:
        lacking = [rank for rank, has in steps.items() if wanted not in has]
        if lacking:
            raise PacelineError(f"rank {lacking[0]}: has no checkpoint {wanted[0]}_{wanted[1]}")
        common = {wanted}
    if not common:
        raise PacelineError(
            "no checkpoint is there for every rank: "
            + ", ".join(
                f"rank {rank} has {_told(max(has)) if has else 'none'}" for rank, has in list(steps.items())[:4]
            ),
            hint="training was stopped while saving? remove what is incomplete",
        )
    step = max(common)
    newer = [rank for rank, has in steps.items() if max(has) > step]
    notes = []
    if newer and wanted is None:
        notes.append(
            f"checkpoint {_told(step)} is used: newer ones are incomplete (only ranks {_list(newer)} have them)"
        )
    return {rank: _last(rank, [k for k in keys if step_of(k) == step]) for rank, keys in ranks.items()}, notes


def step_of(key: str) -> Step | None:
    match = _STEP.search(key.rpartition(".")[0])
    return (int(match[1]), int(match[2])) if match else None


def natural(key: str) -> list[tuple[int, str]]:
    """Numbers in a name compare as numbers."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", key) if part]


def _last(rank: int, keys: list[str]) -> str:
    return max(keys, key=natural)


def _told(step: Step) -> str:
    return f"{step[0]}_{step[1]}"


def _list(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
