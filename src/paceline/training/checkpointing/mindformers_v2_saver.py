"""Save checkpoints in MindFormers' 2.0 format: iteration_00000040/ for all ranks, committed by a tracker file.

Every rank writes its files and then its record; rank 0 waits for all records, and only then updates the tracker. Ranks
must share the directory. Weights are assumed to be replicated (data parallel): each rank holds the full tensors.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from paceline.checkpoint.formats import mindformers_v2
from paceline.checkpoint.formats.safetensors import FORMAT
from paceline.checkpoint.manifest import FileRecord, RankRecord, encode, read_record, record_name
from paceline.checkpoint.write_checkpoint import (
    InMemoryTensor,
    plan_file,
    remove_unfinished,
    write_file,
    write_small_file,
)
from paceline.core.errors import FormatError, PacelineError
from paceline.training.checkpointing.rank_saver import SavePoint
from paceline.training.ranks import Ranks

_DIRECTORY = re.compile(r"iteration_(\d{8,})")
_POLL = 0.1
COMMIT_TIMEOUT = 600.0
"""Seconds rank 0 waits for the files of the other ranks, in the background."""


@dataclass
class IterationSaver:
    directory: Path
    """…/checkpoint"""
    prefix: str
    ranks: Ranks
    keep: int = 5
    commit_timeout: float = field(default_factory=lambda: COMMIT_TIMEOUT)
    _attempt: str = ""
    _wait_until: float = math.inf
    """Deadline for waiting for other ranks (monotonic clock)."""

    def begin(self, attempt: str) -> None:
        self._attempt = attempt
        if self.ranks.rank == 0:
            for directory in self.directory.glob("iteration_*"):
                remove_unfinished(directory)

    def limit_waiting(self, seconds: float) -> None:
        """Training failed, here or on other ranks: wait at most this long for them."""
        self._wait_until = time.monotonic() + seconds

    def save(
        self, point: SavePoint, tensors: Sequence[InMemoryTensor], common: Mapping[str, int | float], weights: Set[str]
    ) -> Path:
        """weights: names of the model's tensors; the others belong to the optimizer."""
        if any(tensor.full_shape is not None for tensor in tensors):
            raise PacelineError(
                "sharded tensors cannot be saved in MindFormers' 2.0 format", hint="use_legacy_format: True saves them"
            )
        directory = self.directory / f"iteration_{point.global_step:08d}"
        directory.mkdir(parents=True, exist_ok=True)
        groups = {flag: [t for t in tensors if (t.name not in weights) == flag] for flag in (False, True)}
        files = {}
        for optimizer, group in groups.items():
            if group:
                name = self._file(self.ranks.rank, optimizer)
                written = write_file(directory / name, group, FORMAT)
                files[name] = FileRecord(
                    written.size, written.etag, point.epoch, point.step, point.global_step, self._attempt
                )
        write_small_file(directory, record_name(self.ranks.rank), encode(RankRecord(self.ranks.world_size, files)))
        if self.ranks.rank == 0:
            self._commit(directory, point, groups, common)
        return directory

    def _commit(
        self,
        directory: Path,
        point: SavePoint,
        groups: Mapping[bool, Sequence[InMemoryTensor]],
        common: Mapping[str, int | float],
    ) -> None:
        write_small_file(directory, mindformers_v2.COMMON, json.dumps(common).encode())
        write_small_file(directory, mindformers_v2.METADATA, self._metadata(groups))
        missing = self._wait_for_records(lambda: self._missing(directory))
        if missing:
            raise PacelineError(
                f"{directory}: rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing[:8]))} did not save "
                f"in time: this checkpoint is not committed",
                hint="this format needs an output directory shared by all ranks; use_legacy_format: True does not",
            )
        write_small_file(self.directory, mindformers_v2.TRACKER, f"{point.global_step}".encode())
        self._prune(point)

    def _missing(self, directory: Path) -> list[int]:
        return [rank for rank in range(self.ranks.world_size) if not self._is_saved(directory / record_name(rank))]

    def _is_saved(self, path: Path) -> bool:
        try:
            record = read_record(path.read_bytes(), str(path))
        except (FileNotFoundError, FormatError):
            return False
        return all(file.attempt == self._attempt for file in record.files.values())

    def _wait_for_records(self, missing: Callable[[], list[int]]) -> list[int]:
        until = time.monotonic() + self.commit_timeout
        while (found := missing()) and time.monotonic() < min(until, self._wait_until):
            time.sleep(_POLL)
        return found

    def _metadata(self, groups: Mapping[bool, Sequence[InMemoryTensor]]) -> bytes:
        shapes = {tensor.name: tensor.shape for group in groups.values() for tensor in group}
        files = []
        for optimizer, group in groups.items():
            tensors_of_group = plan_file("", group, FORMAT).tensors if group else []
            for rank in range(self.ranks.world_size):
                files.append((rank, plan_file(self._file(rank, optimizer), (), FORMAT), tensors_of_group))
        return mindformers_v2.metadata(files, shapes, {})

    def _file(self, rank: int, optimizer: bool) -> str:
        return mindformers_v2.file_name(self.prefix, rank, self.ranks.world_size, optimizer=optimizer)

    def _prune(self, point: SavePoint) -> None:
        """Remove old checkpoints up to the newest committed one; later ones were written before a resume."""
        found = [
            (int(match[1]), path) for path in self.directory.iterdir() if (match := _DIRECTORY.fullmatch(path.name))
        ]
        older = sorted((number, path) for number, path in found if number <= point.global_step)
        for _, path in older[: -self.keep] if self.keep else []:
            shutil.rmtree(path, ignore_errors=True)
