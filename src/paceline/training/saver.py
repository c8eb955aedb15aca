"""Checkpoints of one rank, as MindFormers names them: rank_i/{prefix}_rank_{i}-{epoch}_{step}.ckpt, meta.json last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from paceline.checkpoint.arrays import HeldTensor, remove_unfinished, write_file, write_small
from paceline.checkpoint.record import META, CheckpointName, FileRecord, Meta, Record, encode, parse_name, read_meta
from paceline.errors import FormatError
from paceline.training.ranks import Ranks


@dataclass(frozen=True)
class Moment:
    """When a checkpoint was taken."""

    epoch: int
    step: int
    """Within the epoch."""
    global_step: int


@dataclass
class RankSaver:
    directory: Path
    """…/checkpoint/rank_i"""
    prefix: str
    ranks: Ranks
    format: str = "ckpt"
    keep: int = 5
    """0: all."""
    _run: int = 0
    _attempt: str = ""
    _files: dict[str, FileRecord] = field(default_factory=dict)
    _abandoned: set[str] = field(default_factory=set)

    def begin(self, step: int, attempt: str) -> None:
        """Look at what earlier starts left; step: where this one begins; attempt: tells it from others, on all ranks."""
        remove_unfinished(self.directory)
        self._attempt = attempt
        self._files = dict(_recorded(self.directory))
        names = self._names()
        self._run = max((name.run for name in names), default=-1)
        # From scratch beside older files: a new number, as MindSpore does. Resumed: the same training goes on.
        self._run = max(self._run + (step == 0), 0)
        # What lies behind the point we resumed from belongs to a course that is over: kept, but committed no longer.
        self._abandoned = {name for name, record in self._files.items() if step and record.global_step > step}
        self._files = {name: record for name, record in self._files.items() if name not in self._abandoned}

    def save(self, moment: Moment, tensors: Sequence[HeldTensor]) -> Path:
        """Old ones go after the new one is safe, never before."""
        name = str(CheckpointName(self.prefix, self.ranks.rank, self._run, moment.epoch, moment.step, self.format))
        written = write_file(self.directory / name, tensors, self.format)
        self._files[name] = FileRecord(
            written.size, written.tag, moment.epoch, moment.step, moment.global_step, self._attempt
        )
        self._abandoned.discard(name)
        self._commit(name, moment)
        self._prune(moment)
        return self.directory / name

    def _commit(self, name: str, moment: Moment) -> None:
        present = {key: record for key, record in self._files.items() if (self.directory / key).exists()}
        self._files = present
        meta = Meta(moment.epoch, moment.step, name, Record(self.ranks.world_size, present))
        write_small(self.directory, META, encode(meta))

    def _prune(self, moment: Moment) -> None:
        if not self.keep:
            return
        own = sorted((name for name in self._names() if name.run == self._run), key=lambda name: name.order)
        valid = [name for name in own if str(name) not in self._abandoned]
        kept = {str(name) for name in valid[-self._keep_now() :]} | self._common()
        for name in own:
            if str(name) not in kept and (name.epoch, name.step) < (moment.epoch, moment.step):
                (self.directory / str(name)).unlink(missing_ok=True)

    def _keep_now(self) -> int:
        """Where other ranks' files cannot be seen, one more: they may not have finished the newest yet."""
        return self.keep if self._all_visible() else self.keep + 1

    def _common(self) -> set[str]:
        """The newest of ours that every rank has committed: what a resume would take now."""
        if self.ranks.world_size == 1 or not self._all_visible():
            return set()
        others = [
            {(record.epoch, record.step, record.attempt) for _, record in _recorded(directory)}
            for directory in self._rank_directories()
        ]
        shared = set.intersection(*others)
        mine = [
            (record.global_step, name)
            for name, record in self._files.items()
            if (record.epoch, record.step, record.attempt) in shared
        ]
        return {max(mine)[1]} if mine else set(self._files)

    def _all_visible(self) -> bool:
        return all(directory.is_dir() for directory in self._rank_directories())

    def _rank_directories(self) -> Iterator[Path]:
        return (self.directory.with_name(f"rank_{rank}") for rank in range(self.ranks.world_size))

    def _names(self) -> list[CheckpointName]:
        found = (parse_name(path.name) for path in self.directory.iterdir())
        ours = (name for name in found if name and name.prefix == self.prefix and name.rank == self.ranks.rank)
        return [replace(name, format=self.format) for name in ours if name.format == self.format]


def _recorded(directory: Path) -> Iterator[tuple[str, FileRecord]]:
    """What a rank committed; nothing where it has not begun or its record is not ours."""
    try:
        meta = read_meta((directory / META).read_bytes(), str(directory / META))
    except (FileNotFoundError, NotADirectoryError, FormatError):
        return
    if meta.paceline is not None:
        yield from meta.paceline.files.items()
