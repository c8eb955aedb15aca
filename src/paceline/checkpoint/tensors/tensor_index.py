"""Index of a tensor file: names, element types, shapes and byte ranges of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Tuple

from paceline.checkpoint.tensor_files import SourceFile
from paceline.checkpoint.tensors.dtypes import DType
from paceline.checkpoint.tensors.tensor_slice import Shape
from paceline.core.errors import FormatError

Extent = Tuple[int, int]
"""(first byte in the file, number of bytes)"""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file; large ones consist of several extents."""

    name: str
    dtype: DType
    shape: Shape
    extents: tuple[Extent, ...]
    layout_strides: Shape | None = None
    """Strides in elements, if the tensor is not row-major (torch)."""

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.bytes


@dataclass(frozen=True)
class Container:
    """A file and its index."""

    file: SourceFile
    format: str
    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, str] = field(default_factory=dict)
    crc: int | None = None
    """CRC of a .ckpt file's messages, from its trailer."""
    crc_end: int = 0
    """End of those messages."""


def damaged(file: SourceFile, what: str) -> FormatError:
    return FormatError(f"{file.name}: damaged or truncated: {what}", file=file.path)
