"""A checkpoint file out of memory: written beside, synced, renamed; nobody sees half of it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.checkpoint import ckpt, safetensors
from paceline.checkpoint.box import Shape, whole
from paceline.checkpoint.dtypes import DType
from paceline.checkpoint.frame import Frame, Wanted
from paceline.errors import UsageError
from paceline.storage.checksum import PART, part_size
from paceline.storage.disk import explained
from paceline.storage.file import FileStore
from paceline.storage.store import FullError, Item, Store, partial_name

_WRITE = 1 << 20
FORMATS = (ckpt.FORMAT, safetensors.FORMAT)


@dataclass(frozen=True)
class HeldTensor:
    """A tensor in memory, as bytes."""

    name: str
    dtype: DType
    shape: Shape
    data: memoryview


@dataclass(frozen=True)
class Written:
    """A file as it was written: enough to know it again, here and in a bucket."""

    name: str
    size: int
    tag: str
    """MD5 as S3 tags it: of the whole up to 8 MiB, else of the parts' MD5s."""


def make_frame(
    key: str, tensors: Sequence[HeldTensor], format: str, metadata: Mapping[str, str] | None = None
) -> Frame:
    wanted = [Wanted(tensor.name, tensor.dtype, whole(tensor.shape), ()) for tensor in tensors]
    if format == ckpt.FORMAT:
        return ckpt.frame(key, wanted)
    if format == safetensors.FORMAT:
        return safetensors.frame(key, wanted, metadata)
    raise UsageError(f"checkpoint_format {format!r} is not known", hint=f"known: {', '.join(FORMATS)}")


def write_file(path: Path, tensors: Sequence[HeldTensor], format: str) -> Written:
    """The old file, or the new one, whatever happens meanwhile."""
    frame = make_frame(path.name, tensors, format)
    data = {tensor.name: tensor.data for tensor in tensors}
    partial = path.with_name(partial_name(path.name, ""))
    with explained(path):
        _need_room(path, frame.size)
        try:
            with partial.open("wb", buffering=0) as file:
                tag = Tag(frame.size)
                for block in _blocks(frame, data):
                    tag.update(block)
                    _write_all(file.fileno(), block)
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
    return Written(path.name, frame.size, tag.text())


def tag_part(size: int) -> int | None:
    """The part size that Paceline's uploads of this size have; None: one piece."""
    return None if size <= PART else part_size(size)


def is_as_written(store: Store, item: Item, written: Written) -> bool | None:
    """None: this store cannot tell without reading everything."""
    if item.size != written.size:
        return False
    found = store.digest(item, tag_part(item.size))
    return None if found is None else found == written.tag


def sync_directory(directory: Path) -> None:
    """So that names are on the disk too."""
    file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def remove_unfinished(directory: Path) -> None:
    """What a killed writer left; only for a directory that has one writer."""
    for path in directory.glob(f".*{partial_name('', '')[2:]}"):
        path.unlink(missing_ok=True)


class Tag:
    """Sums up a file of known size while it is written."""

    def __init__(self, size: int) -> None:
        self._part = tag_part(size)
        self._left = self._part or 0
        self._now = hashlib.md5(usedforsecurity=False)
        self._parts: list[bytes] = []

    def update(self, data: memoryview) -> None:
        while self._part is not None and len(data) >= self._left:
            self._now.update(data[: self._left])
            data = data[self._left :]
            self._parts.append(self._now.digest())
            self._now, self._left = hashlib.md5(usedforsecurity=False), self._part
        self._now.update(data)
        self._left -= len(data)

    def text(self) -> str:
        if self._part is None:
            return self._now.hexdigest()
        parts = self._parts if self._left == self._part else [*self._parts, self._now.digest()]
        return f"{hashlib.md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}"


def _need_room(path: Path, size: int) -> None:
    """Found out before the disk is full: others write there too."""
    if shutil.disk_usage(path.parent).free < size:
        raise FullError(f"{path}: no space left on the device ({size >> 20:,} MiB needed)", hint="free some")


def _blocks(frame: Frame, data: Mapping[str, memoryview]) -> Iterator[memoryview]:
    for _, part in frame.parts(0, frame.size):
        view = (
            memoryview(part)
            if isinstance(part, bytes)
            else data[part.tensor.name][part.start : part.start + part.length]
        )
        for start in range(0, len(view), _WRITE):
            yield view[start : start + _WRITE]


def _write_all(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]


def write_small(directory: Path, name: str, data: bytes) -> None:
    """A marker or a record: whole or not at all, and on the disk when this returns."""
    FileStore(directory).write(name, data, hashlib.md5(data, usedforsecurity=False).hexdigest())
    with explained(directory):
        sync_directory(directory)
