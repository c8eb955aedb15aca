"""Save checkpoints of one rank: rank_i/{prefix}_rank_{i}-{epoch}_{step}.ckpt as in MindFormers, then meta.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from paceline.checkpoint.file_names import CheckpointName, parse_name
from paceline.checkpoint.manifest import META, FileRecord, RankMeta, RankRecord, encode, read_meta
from paceline.checkpoint.write_checkpoint import InMemoryTensor, remove_unfinished, write_file, write_small_file
from paceline.core.errors import FormatError
from paceline.training.ranks import Ranks


@dataclass(frozen=True)
class SavePoint:
    """Epoch and step at which a checkpoint was taken."""

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
    """Number of checkpoints to keep; 0: all."""
    _run: int = 0
    _attempt: str = ""
    _files: dict[str, FileRecord] = field(default_factory=dict)
    _obsolete: set[str] = field(default_factory=set)

    def begin(self, step: int, attempt: str) -> None:
        """Read the records of earlier starts. step: where this start begins; attempt: its id, the same on all ranks."""
        remove_unfinished(self.directory)
        self._attempt = attempt
        self._files = dict(_committed_files(self.directory))
        names = self._names()
        self._run = max((name.run for name in names), default=-1)
        # From scratch next to older files: a new run number, as in MindSpore. Resumed: the same run number.
        self._run = max(self._run + (step == 0), 0)
        # Checkpoints after the step we resumed from are obsolete: kept, but no longer committed.
        self._obsolete = {name for name, record in self._files.items() if step and record.global_step > step}
        self._files = {name: record for name, record in self._files.items() if name not in self._obsolete}

    def save(self, point: SavePoint, tensors: Sequence[InMemoryTensor]) -> Path:
        """Old checkpoints are removed only after the new one is committed."""
        name = str(CheckpointName(self.prefix, self.ranks.rank, self._run, point.epoch, point.step, self.format))
        written = write_file(self.directory / name, tensors, self.format)
        self._files[name] = FileRecord(
            written.size,
            written.etag,
            point.epoch,
            point.step,
            point.global_step,
            self._attempt,
            self.ranks.world_size,
        )
        self._obsolete.discard(name)
        self._commit(name, point)
        self._prune(point)
        return self.directory / name

    def _commit(self, name: str, point: SavePoint) -> None:
        present = {key: record for key, record in self._files.items() if (self.directory / key).exists()}
        self._files = present
        meta = RankMeta(point.epoch, point.step, name, RankRecord(self.ranks.world_size, present))
        write_small_file(self.directory, META, encode(meta))

    def _prune(self, point: SavePoint) -> None:
        if not self.keep:
            return
        own = sorted((name for name in self._names() if name.run == self._run), key=lambda name: name.order)
        valid = [name for name in own if str(name) not in self._obsolete]
        kept = {str(name) for name in valid[-self._keep_count() :]} | self._newest_complete()
        for name in own:
            if str(name) not in kept and (name.epoch, name.step) < (point.epoch, point.step):
                (self.directory / str(name)).unlink(missing_ok=True)

    def _keep_count(self) -> int:
        """One more if the files of other ranks are not visible: they may not have finished the newest yet."""
        return self.keep if self._sees_all_ranks() else self.keep + 1

    def _newest_complete(self) -> set[str]:
        """The newest checkpoint that every rank has committed, which a resume would use."""
        if self.ranks.world_size == 1 or not self._sees_all_ranks():
            return set()
        others = [
            {(record.epoch, record.step, record.attempt) for _, record in _committed_files(directory)}
            for directory in self._rank_directories()
        ]
        shared = set.intersection(*others)
        mine = [
            (record.global_step, name)
            for name, record in self._files.items()
            if (record.epoch, record.step, record.attempt) in shared
        ]
        return {max(mine)[1]} if mine else set(self._files)

    def _sees_all_ranks(self) -> bool:
        return all(directory.is_dir() for directory in self._rank_directories())

    def _rank_directories(self) -> Iterator[Path]:
        return (self.directory.with_name(f"rank_{rank}") for rank in range(self.ranks.world_size))

    def _names(self) -> list[CheckpointName]:
        found = (parse_name(path.name) for path in self.directory.iterdir())
        ours = (name for name in found if name and name.prefix == self.prefix and name.rank == self.ranks.rank)
        return [replace(name, format=self.format) for name in ours if name.format == self.format]


def _committed_files(directory: Path) -> Iterator[tuple[str, FileRecord]]:
    """Files that a rank committed; none if it has not started or its meta.json has no records."""
    try:
        meta = read_meta((directory / META).read_bytes(), str(directory / META))
    except (FileNotFoundError, NotADirectoryError, FormatError):
        return
    if meta.paceline is not None:
        yield from meta.paceline.files.items()
