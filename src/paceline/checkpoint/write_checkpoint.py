"""Write a checkpoint file from memory: to a temporary name, synced, then renamed (atomic)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.checkpoint.formats import ckpt, safetensors
from paceline.checkpoint.plan.file_plan import FilePlan, PlannedTensor, TensorBytes
from paceline.checkpoint.tensors.dtypes import DType
from paceline.checkpoint.tensors.tensor_slice import Shape, full_slice
from paceline.core.errors import UsageError
from paceline.storage.checksum import MIN_PART_SIZE, md5, new_md5, part_size
from paceline.storage.local_io.os_errors import translate_os_errors
from paceline.storage.partial_files import partial_name
from paceline.storage.store_errors import FullError
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import Store
from paceline.storage.stores.local import FileStore

_WRITE = 1 << 20
FORMATS = (ckpt.FORMAT, safetensors.FORMAT)


@dataclass(frozen=True)
class InMemoryTensor:
    """A tensor as bytes in memory."""

    name: str
    dtype: DType
    shape: Shape
    data: memoryview
    full_shape: Shape | None = None
    """Of the parameter, where this is only a slice of it."""
    start: Shape = ()


@dataclass(frozen=True)
class WrittenFile:
    """Name, size and checksum of a written file: enough to verify it, locally and in a bucket."""

    name: str
    size: int
    etag: str
    """MD5 in the form of an S3 ETag: of the content up to 8 MiB, else of the MD5s of the parts."""


def plan_file(
    key: str, tensors: Sequence[InMemoryTensor], format: str, metadata: Mapping[str, str] | None = None
) -> FilePlan:
    planned = [PlannedTensor(tensor.name, tensor.dtype, full_slice(tensor.shape), ()) for tensor in tensors]
    if format == ckpt.FORMAT:
        return ckpt.plan_file(key, planned)
    if format == safetensors.FORMAT:
        return safetensors.plan_file(key, planned, metadata)
    raise UsageError(f"unknown checkpoint_format {format!r}", hint=f"known: {', '.join(FORMATS)}")


def _slices(tensors: Sequence[InMemoryTensor], format: str) -> dict[str, str] | None:
    """What each tensor is a slice of, for the header; None if all are full."""
    if all(tensor.full_shape is None for tensor in tensors):
        return None
    if format != safetensors.FORMAT:
        raise UsageError("slices of tensors are saved as safetensors, whose header tells which slice each is")
    held = {tensor.name: (tensor.full_shape, tensor.start) for tensor in tensors if tensor.full_shape is not None}
    return {safetensors.SLICES: json.dumps(held, separators=(",", ":"))}


def write_file(path: Path, tensors: Sequence[InMemoryTensor], format: str) -> WrittenFile:
    """Atomic: after an interruption the path holds the old file or the new one."""
    file_plan = plan_file(path.name, tensors, format, _slices(tensors, format))
    data = {tensor.name: tensor.data for tensor in tensors}
    partial = path.with_name(partial_name(path.name, ""))
    with translate_os_errors(path):
        _check_free_space(path, file_plan.size)
        try:
            with partial.open("wb", buffering=0) as file:
                hasher = EtagHasher(file_plan.size)
                for block in _blocks(file_plan, data):
                    hasher.update(block)
                    _write_all(file.fileno(), block)
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
    return WrittenFile(path.name, file_plan.size, hasher.etag())


def etag_part_size(size: int) -> int | None:
    """Part size that Paceline uses to upload a file of this size; None: a single part."""
    return None if size <= MIN_PART_SIZE else part_size(size)


def matches_written(store: Store, item: StoredFile, written: WrittenFile) -> bool | None:
    """Compare size and checksum; None: this store cannot report the checksum without reading the file."""
    if item.size != written.size:
        return False
    found = store.digest(item, etag_part_size(item.size))
    return None if found is None else found == written.etag


def sync_directory(directory: Path) -> None:
    """Make renames in this directory durable."""
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def remove_unfinished(directory: Path) -> None:
    """Remove partial files of a killed writer; only for a directory with a single writer."""
    for path in directory.glob(f".*{partial_name('', '')[2:]}"):
        path.unlink(missing_ok=True)


class EtagHasher:
    """Computes the ETag of a file of known size while it is written."""

    def __init__(self, size: int) -> None:
        self._part = etag_part_size(size)
        self._left = self._part or 0
        self._now = new_md5()
        self._parts: list[bytes] = []

    def update(self, data: memoryview) -> None:
        while self._part is not None and len(data) >= self._left:
            self._now.update(data[: self._left])
            data = data[self._left :]
            self._parts.append(self._now.digest())
            self._now, self._left = new_md5(), self._part
        self._now.update(data)
        self._left -= len(data)

    def etag(self) -> str:
        if self._part is None:
            return self._now.hexdigest()
        parts = self._parts if self._left == self._part else [*self._parts, self._now.digest()]
        return f"{md5(b''.join(parts))}-{len(parts)}"


def _check_free_space(path: Path, size: int) -> None:
    """Fail before the disk is full, because others write to it too."""
    if shutil.disk_usage(path.parent).free < size:
        raise FullError(f"{path}: no space left on the device ({size >> 20:,} MiB needed)", hint="free some space")


def _blocks(file_plan: FilePlan, data: Mapping[str, memoryview]) -> Iterator[memoryview]:
    for _, part in file_plan.parts(0, file_plan.size):
        if isinstance(part, bytes):
            view = memoryview(part)
        else:
            assert isinstance(part, TensorBytes), "checksums of tensors occur in DCP files only"
            view = data[part.tensor.name][part.start : part.start + part.length]
        for start in range(0, len(view), _WRITE):
            yield view[start : start + _WRITE]


def _write_all(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]


def write_small_file(directory: Path, name: str, data: bytes) -> None:
    """Write a marker or record file atomically and durably."""
    FileStore(directory).write(name, data, md5(data))
    with translate_os_errors(directory):
        sync_directory(directory)
