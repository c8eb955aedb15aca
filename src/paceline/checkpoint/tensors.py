"""What a file with tensors holds: names, types, shapes, and at which bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from paceline.checkpoint.box import Shape
from paceline.checkpoint.dtypes import DType
from paceline.checkpoint.files import SourceFile
from paceline.errors import FormatError

Extent = tuple[int, int]
"""(first byte in the file, number of bytes)"""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file; large ones lie in several extents."""

    name: str
    dtype: DType
    shape: Shape
    extents: tuple[Extent, ...]
    layout_strides: Shape | None = None
    """In elements, where a tensor is not row-major (torch)."""

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.bytes


@dataclass(frozen=True)
class Container:
    """A file and its index."""

    file: SourceFile
    format: str
    tensors: Mapping[str, Stored]
    metadata: Mapping[str, str] = field(default_factory=dict)
    crc: int | None = None
    """Of a .ckpt file's messages, as its trailer says."""
    crc_end: int = 0
    """Where those messages end."""


def damaged(file: SourceFile, what: str) -> FormatError:
    return FormatError(f"{file.name}: is damaged or cut off: {what}", file=file.path)
