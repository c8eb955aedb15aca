"""FilePlan: a file to be written as a sequence of known bytes and tensor contents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Union

from paceline.checkpoint.tensors.dtypes import DType
from paceline.checkpoint.tensors.tensor_index import Container, StoredTensor
from paceline.checkpoint.tensors.tensor_slice import Shape, TensorSlice

CRC_BYTES = 4


@dataclass(frozen=True)
class Piece:
    """A slice of a parameter that is stored in a file."""

    slice: TensorSlice
    container: Container
    stored: StoredTensor


@dataclass(frozen=True)
class LoraUpdate:
    """Added to a tensor while it is copied: scale · left · right."""

    left: PlannedTensor
    right: PlannedTensor
    scale: float


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor to be written: a slice of a parameter, and the pieces that cover it."""

    name: str
    dtype: DType
    slice: TensorSlice
    pieces: Sequence[Piece]
    order: int = 0
    """Position of the parameter among all: files are written in this order, so that each source byte is read once."""
    lora: LoraUpdate | None = None

    @property
    def shape(self) -> Shape:
        return self.slice.shape

    @property
    def bytes(self) -> int:
        return prod(self.slice.shape) * self.dtype.bytes


@dataclass(frozen=True)
class TensorBytes:
    """Bytes start … start + length of a tensor."""

    tensor: PlannedTensor
    start: int
    length: int


@dataclass(eq=False)
class TensorCrc:
    """CRC32 of a tensor's bytes (little-endian), computed when it is needed: known before the tensor is written."""

    tensor: PlannedTensor
    value: int | None = None


@dataclass(frozen=True)
class CrcBytes:
    """Bytes start … start + length of a CRC."""

    crc: TensorCrc
    start: int
    length: int


Part = Union[bytes, TensorBytes, CrcBytes]


@dataclass
class FilePlan:
    key: str
    """Relative to the target directory."""
    size: int = 0
    _starts: list[int] = field(default_factory=list)
    _parts: list[Part] = field(default_factory=list)
    trailer: int = 0
    """Length of the trailer that holds the CRC of everything before it."""

    def add_bytes(self, data: bytes) -> None:
        if self._parts and isinstance(self._parts[-1], bytes):
            self._parts[-1] += data
            self.size += len(data)
        else:
            self._add(data, len(data))

    def add_tensor(self, tensor: PlannedTensor, start: int, length: int) -> None:
        if length:
            self._add(TensorBytes(tensor, start, length), length)

    def add_tensor_crc(self, crc: TensorCrc) -> None:
        self._add(CrcBytes(crc, 0, CRC_BYTES), CRC_BYTES)

    def end_with_crc(self, length: int) -> None:
        self.trailer = length
        self.size += length

    @property
    def body(self) -> int:
        """Bytes before the trailer."""
        return self.size - self.trailer

    @property
    def tensors(self) -> list[PlannedTensor]:
        return list({id(part.tensor): part.tensor for part in self._parts if isinstance(part, TensorBytes)}.values())

    def parts(self, low: int, high: int) -> Iterator[tuple[int, Part]]:
        """Content of bytes low … high as (offset, bytes, or a range of a tensor or of its CRC)."""
        number = bisect_right(self._starts, low) - 1
        while number < len(self._parts) and self._starts[number] < high:
            part, start = self._parts[number], self._starts[number]
            length = len(part) if isinstance(part, bytes) else part.length
            first, last = max(low, start), min(high, start + length)
            if first < last:
                if isinstance(part, bytes):
                    yield first, part[first - start : last - start]
                elif isinstance(part, CrcBytes):
                    yield first, CrcBytes(part.crc, part.start + first - start, last - first)
                else:
                    yield first, TensorBytes(part.tensor, part.start + first - start, last - first)
            number += 1

    def _add(self, part: Part, length: int) -> None:
        self._starts.append(self.size)
        self._parts.append(part)
        self.size += length
