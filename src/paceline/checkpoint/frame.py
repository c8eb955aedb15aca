"""A file to be written: bytes that are known now, and places for tensors."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from paceline.checkpoint.box import Box, Shape
from paceline.checkpoint.dtypes import DType
from paceline.checkpoint.tensors import Container, Stored


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a parameter that lies in a file."""

    box: Box
    container: Container
    stored: Stored


@dataclass(frozen=True)
class Addition:
    """What is added while a tensor is copied: scale · left · right (LoRA)."""

    left: Wanted
    right: Wanted
    scale: float


@dataclass(frozen=True)
class Wanted:
    """A tensor of a file to be written: a part of a parameter, and the pieces that cover it."""

    name: str
    dtype: DType
    box: Box
    pieces: Sequence[Piece]
    order: int = 0
    """Of the parameter among all: files are written in step, so that they read the same bytes at the same time."""
    addition: Addition | None = None

    @property
    def shape(self) -> Shape:
        return self.box.shape

    @property
    def bytes(self) -> int:
        return prod(self.box.shape) * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes start … start + length of a tensor's content."""

    tensor: Wanted
    start: int
    length: int


@dataclass
class Frame:
    key: str
    """Relative to the target directory."""
    size: int = 0
    _starts: list[int] = field(default_factory=list)
    _parts: list[bytes | Payload] = field(default_factory=list)
    trailer: int = 0
    """Bytes at the end that hold the CRC of everything before them."""

    def literal(self, data: bytes) -> None:
        if self._parts and isinstance(self._parts[-1], bytes):
            self._parts[-1] += data
            self.size += len(data)
        else:
            self._add(data, len(data))

    def payload(self, tensor: Wanted, start: int, length: int) -> None:
        if length:
            self._add(Payload(tensor, start, length), length)

    def end_with_crc(self, length: int) -> None:
        self.trailer = length
        self.size += length

    @property
    def body(self) -> int:
        """Bytes before the trailer."""
        return self.size - self.trailer

    @property
    def tensors(self) -> list[Wanted]:
        return list({id(part.tensor): part.tensor for part in self._parts if isinstance(part, Payload)}.values())

    def parts(self, low: int, high: int) -> Iterator[tuple[int, bytes | Payload]]:
        """What fills bytes low … high: (where in the file, bytes or a stretch of a tensor)."""
        number = bisect_right(self._starts, low) - 1
        while number < len(self._parts) and self._starts[number] < high:
            part, start = self._parts[number], self._starts[number]
            length = len(part) if isinstance(part, bytes) else part.length
            first, last = max(low, start), min(high, start + length)
            if first < last:
                if isinstance(part, bytes):
                    yield first, part[first - start : last - start]
                else:
                    yield first, Payload(part.tensor, part.start + first - start, last - first)
            number += 1

    def _add(self, part: bytes | Payload, length: int) -> None:
        self._starts.append(self.size)
        self._parts.append(part)
        self.size += length
