"""Stage checkpoints for upload with hard links: they may be pruned locally while they are being uploaded."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from paceline.checkpoint.formats.mindformers_v2 import TRACKER
from paceline.checkpoint.manifest import META, record_name
from paceline.storage.file_selection import is_unfinished
from paceline.training.session.upload_messages import TransferTask

_STAGING_DIRECTORY = ".upload"
_OWNED = ("checkpoint", "checkpoint_network", "checkpoint_trainable")
_RANK_FILE = re.compile(r"(?:.*-)?(?:model|opt)-(\d{7})-\d{7}\.safetensors")


class UploadStaging:
    """Staging area of one rank, below the output root; hard links use no extra space."""

    def __init__(self, root: Path, url: str, rank: int, world: int) -> None:
        self._root, self._url, self._rank, self._world = root, url.rstrip("/"), rank, world
        self._directory = root / _STAGING_DIRECTORY / f"rank_{rank}"

    def tasks(self, *, keep_last: bool) -> list[TransferTask]:
        """Link the current files; returns what to upload, most important first."""
        keep = self._rank if keep_last else -1
        found = []
        for kind in _OWNED:
            source = self._root / kind / f"rank_{self._rank}"
            if source.is_dir() and (names := self._finished_files(source)):
                # Link meta.json first: the files it lists were written before it, and are linked after it.
                names.sort(key=lambda name: name != META)
                staged = self._link(source, names, f"{kind}/rank_{self._rank}")
                target = f"{self._url}/{kind}/rank_{self._rank}"
                pruned = keep if kind == "checkpoint" else -1
                found.append(TransferTask(str(staged), target, world=self._world, keep_rank=pruned))
        return found + self._iteration_tasks(keep_last)

    def clear(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        try:
            self._directory.parent.rmdir()
        except OSError:
            pass  # other ranks still use it

    def _iteration_tasks(self, keep_last: bool) -> list[TransferTask]:
        base = self._root / "checkpoint"
        # Linked first: a newer tracker may appear whose files are not linked yet.
        tracker = self._link(base, [TRACKER], "tracker")
        names = [
            f"{directory.name}/{file.name}"
            for directory in sorted(base.glob("iteration_*"))
            if (directory / record_name(self._rank)).exists()
            for file in sorted(directory.iterdir())
            if self._is_ours(file.name)
        ]
        if not names:
            return []
        staged, target = str(self._link(base, names, "iterations")), f"{self._url}/checkpoint"
        found = [TransferTask(staged, target, "data"), TransferTask(staged, target, "records", world=self._world)]
        if self._rank == 0 and (tracker / TRACKER).exists():
            committed = f"iteration_{int((tracker / TRACKER).read_text()):08d}"
            found.append(TransferTask(str(tracker), target, gate=committed, world=self._world))
            if keep_last:
                found.append(TransferTask(staged, target, "records", world=self._world, keep_rank=0))
        return found

    def _is_ours(self, name: str) -> bool:
        if match := _RANK_FILE.fullmatch(name):
            return int(match[1]) == self._rank
        if re.fullmatch(r"rank_\d{7}\.json", name):
            return name == record_name(self._rank)
        return self._rank == 0 and not is_unfinished(name)

    def _finished_files(self, directory: Path) -> list[str]:
        return [entry.name for entry in os.scandir(directory) if entry.is_file() and not is_unfinished(entry.name)]

    def _link(self, source: Path, names: Iterable[str], name: str) -> Path:
        target = self._directory / name
        wanted = set(names)
        for path in list(_files(target)):
            if path.relative_to(target).as_posix() not in wanted:
                path.unlink(missing_ok=True)
                if path.parent != target and not any(path.parent.iterdir()):
                    path.parent.rmdir()
        for name in names:
            self._link_one(source / name, target / name)
        return target

    def _link_one(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if target.exists():
                if target.samefile(source):
                    return
                target.unlink()
            os.link(source, target)
        except FileNotFoundError:
            target.unlink(missing_ok=True)  # pruned between listing and linking: the next round uploads a newer one
        except OSError:
            shutil.copy2(source, target)  # a file system without hard links


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file())
