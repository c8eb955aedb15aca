"""Names of checkpoint files: which rank, run, epoch and step a name stands for."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Tuple

Step = Tuple[int, int]
"""(epoch, step within the epoch)"""
SUFFIXES = (".ckpt", ".safetensors", ".pt", ".pth", ".bin")
STEP = re.compile(r"-(\d{1,9})_(\d{1,12})$")
_RANK = re.compile(r"rank_(\d{1,7})/([^/]+)")
_NAME = re.compile(
    r"(?P<prefix>.+?)(?:_rank_(?P<rank>\d{1,7}))?(?:_(?P<run>\d{1,6}))?-(?P<epoch>\d{1,9})_(?P<step>\d{1,12})"
    r"\.(?P<format>ckpt|safetensors)"
)


@dataclass(frozen=True)
class CheckpointName:
    """{prefix}_rank_{rank}[_{run}]-{epoch}_{step}.{format}; `run` counts runs that started in the same directory."""

    prefix: str
    rank: int | None
    run: int
    epoch: int
    step: int
    format: str

    @property
    def order(self) -> tuple[int, int, int]:
        return self.run, self.epoch, self.step

    def __str__(self) -> str:
        rank = f"_rank_{self.rank}" if self.rank is not None else ""
        return f"{self.prefix}{rank}{f'_{self.run}' if self.run else ''}-{self.epoch}_{self.step}.{self.format}"


def parse_name(name: str) -> CheckpointName | None:
    """
    >>> parse_name("gpt_rank_3_1-10_2.ckpt")
    CheckpointName(prefix='gpt', rank=3, run=1, epoch=10, step=2, format='ckpt')
    """
    found = _NAME.fullmatch(name)
    if not found or name.startswith("."):
        return None
    rank = int(found["rank"]) if found["rank"] else None
    return CheckpointName(
        found["prefix"], rank, int(found["run"] or 0), int(found["epoch"]), int(found["step"]), found["format"]
    )


def rank_files(keys: Collection[str]) -> dict[int, list[str]]:
    """Files below rank_N directories."""
    found: dict[int, list[str]] = {}
    for key in keys:
        match = _RANK.fullmatch(key)
        if match and is_weights_file(match[2]):
            found.setdefault(int(match[1]), []).append(key)
    return dict(sorted(found.items()))


def is_weights_file(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".")


def step_of(key: str) -> Step | None:
    """
    >>> step_of("rank_0/gpt_rank_0-10_2.ckpt")
    (10, 2)
    """
    match = STEP.search(key.rpartition(".")[0])
    return (int(match[1]), int(match[2])) if match else None


def natural_key(key: str) -> list[tuple[int, str]]:
    """Sort key that compares numbers in a name as numbers."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", key) if part]
