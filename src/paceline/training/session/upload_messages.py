"""JSON messages between the training process and its upload worker."""

from __future__ import annotations

from typing import Optional, Tuple

import msgspec


class TransferTask(msgspec.Struct, frozen=True):
    source: str
    target: str
    only: str = "all"
    """"all"; "rest": files that belong to no rank; "data", then "records": files of iteration directories."""
    gate: str = ""
    """Directory iteration_… at the target that must hold the records of all `world` ranks first."""
    world: int = 1
    keys: Optional[Tuple[str, ...]] = None
    """Only these files; None: all that `only` selects."""
    workers: int = 4
    keep_rank: int = -1
    """After the upload, remove older checkpoints of this rank at the target; -1: none."""


class UploadRequest(msgspec.Struct, frozen=True):
    tasks: Tuple[TransferTask, ...]
    patience: float = 60.0


class FailedFile(msgspec.Struct, frozen=True):
    key: str
    reason: str
    retry_later: bool = False
    """The file was being written: the next round uploads it."""


class TransferResult(msgspec.Struct, frozen=True):
    """Result of a task."""

    source: str
    moved: int = 0
    moved_bytes: int = 0
    same: int = 0
    pruned: int = 0
    present: Tuple[str, ...] = ()
    failures: Tuple[FailedFile, ...] = ()
    hint: str = ""
