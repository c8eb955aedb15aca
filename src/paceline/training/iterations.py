"""Checkpoints as MindFormers' second format: iteration_00000040/ for all ranks, a tracker file that commits them.

Every rank writes its files and then its record; rank 0 waits for all records, and only then moves the tracker. Ranks
must share the directory. Weights are taken as replicated (data parallel): each rank holds all of every tensor.
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

from paceline.checkpoint import mindformers
from paceline.checkpoint.arrays import HeldTensor, make_frame, remove_unfinished, write_file, write_small
from paceline.checkpoint.record import FileRecord, Record, encode, read_record, record_name
from paceline.checkpoint.safetensors import FORMAT
from paceline.errors import FormatError, PacelineError
from paceline.training.ranks import Ranks
from paceline.training.saver import Moment

_DIRECTORY = re.compile(r"iteration_(\d{8,})")
_POLL = 0.1
COMMIT_TIMEOUT = 600.0
"""Seconds rank 0 waits, beside training, for the others' files."""


@dataclass
class IterationSaver:
    directory: Path
    """…/checkpoint"""
    prefix: str
    ranks: Ranks
    keep: int = 5
    commit_timeout: float = field(default_factory=lambda: COMMIT_TIMEOUT)
    _attempt: str = ""
    _last_moment: float = math.inf
    """Of waiting for other ranks, by the clock."""

    def begin(self, attempt: str) -> None:
        self._attempt = attempt
        if self.ranks.rank == 0:
            for directory in self.directory.glob("iteration_*"):
                remove_unfinished(directory)

    def hurry(self, seconds: float) -> None:
        """Training failed, here and perhaps elsewhere: wait no longer than this for other ranks."""
        self._last_moment = time.monotonic() + seconds

    def save(
        self, moment: Moment, tensors: Sequence[HeldTensor], common: Mapping[str, int | float], weights: Set[str]
    ) -> Path:
        """weights: which of the tensors are the model's; the others are the optimizer's."""
        directory = self.directory / f"iteration_{moment.global_step:08d}"
        directory.mkdir(parents=True, exist_ok=True)
        groups = {flag: [t for t in tensors if (t.name not in weights) == flag] for flag in (False, True)}
        files = {}
        for optimizer, group in groups.items():
            if group:
                name = self._file(self.ranks.rank, optimizer)
                written = write_file(directory / name, group, FORMAT)
                files[name] = FileRecord(
                    written.size, written.tag, moment.epoch, moment.step, moment.global_step, self._attempt
                )
        write_small(directory, record_name(self.ranks.rank), encode(Record(self.ranks.world_size, files)))
        if self.ranks.rank == 0:
            self._commit(directory, moment, groups, common)
        return directory

    def _commit(
        self,
        directory: Path,
        moment: Moment,
        groups: Mapping[bool, Sequence[HeldTensor]],
        common: Mapping[str, int | float],
    ) -> None:
        write_small(directory, mindformers.COMMON, json.dumps(common).encode())
        write_small(directory, mindformers.METADATA, self._metadata(groups))
        missing = self._wait(lambda: self._missing(directory))
        if missing:
            raise PacelineError(
                f"{directory}: rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing[:8]))} saved nothing "
                f"in time: this checkpoint is not committed",
                hint="ranks must share the output directory for this format (use_legacy_format: True needs no sharing)",
            )
        write_small(self.directory, mindformers.TRACKER, f"{moment.global_step}".encode())
        self._prune(moment)

    def _missing(self, directory: Path) -> list[int]:
        return [rank for rank in range(self.ranks.world_size) if not self._is_there(directory / record_name(rank))]

    def _is_there(self, path: Path) -> bool:
        try:
            record = read_record(path.read_bytes(), str(path))
        except (FileNotFoundError, FormatError):
            return False
        return all(file.attempt == self._attempt for file in record.files.values())

    def _wait(self, missing: Callable[[], list[int]]) -> list[int]:
        until = time.monotonic() + self.commit_timeout
        while (found := missing()) and time.monotonic() < min(until, self._last_moment):
            time.sleep(_POLL)
        return found

    def _metadata(self, groups: Mapping[bool, Sequence[HeldTensor]]) -> bytes:
        shapes = {tensor.name: tensor.shape for group in groups.values() for tensor in group}
        told = []
        for optimizer, group in groups.items():
            wanted = make_frame("", group, FORMAT).tensors if group else []
            for rank in range(self.ranks.world_size):
                told.append((rank, make_frame(self._file(rank, optimizer), (), FORMAT), wanted))
        return mindformers.metadata(told, shapes, {})

    def _file(self, rank: int, optimizer: bool) -> str:
        return mindformers.file_name(self.prefix, rank, self.ranks.world_size, optimizer=optimizer)

    def _prune(self, moment: Moment) -> None:
        """Older ones than the newest committed; what lies behind it belongs to a course that is over."""
        found = [
            (int(match[1]), path) for path in self.directory.iterdir() if (match := _DIRECTORY.fullmatch(path.name))
        ]
        older = sorted((number, path) for number, path in found if number <= moment.global_step)
        for _, path in older[: -self.keep] if self.keep else []:
            shutil.rmtree(path, ignore_errors=True)
