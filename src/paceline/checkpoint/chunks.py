"""The order of work: chunks of all files, sorted by what they read."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paceline.checkpoint.ckpt import crc_trailer
from paceline.checkpoint.frame import Frame, Payload
from paceline.checkpoint.gather import gather
from paceline.storage.store import Item

if TYPE_CHECKING:
    from paceline.checkpoint.writers import Writer


@dataclass
class Work:
    """A file on its way."""

    frame: Frame
    writer: Writer
    item: Item
    left: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def finished_one(self) -> bool:
        """Whether it was the last."""
        with self._lock:
            self.left -= 1
            return self.left == 0


@dataclass(frozen=True)
class Chunk:
    work: Work
    number: int
    low: int
    high: int

    @property
    def length(self) -> int:
        return self.high - self.low


def chunks_in_step(works: Sequence[Work]) -> Iterator[Chunk]:
    """What is not written yet; files advance together through the parameters."""
    found: list[tuple[tuple[int, float], int, Chunk]] = []
    for place, work in enumerate(works):
        open_chunks = [n for n in range(work.writer.count) if n not in work.writer.done]
        # A file whose chunks were all written before it could be renamed still has to be finished.
        work.left = max(1, len(open_chunks))
        if not open_chunks:
            found.append(((0, 0.0), place, Chunk(work, 0, 0, 0)))
        for number in open_chunks:
            low = number * work.writer.chunk
            high = low + work.writer.length(number)
            found.append((_order(work.frame, low, high), place, Chunk(work, number, low, high)))
    found.sort(key=lambda each: each[:2])
    return iter([chunk for _, _, chunk in found])


def _order(frame: Frame, low: int, high: int) -> tuple[int, float]:
    """The first parameter in a chunk, and how far into it along its first axis."""
    for _, part in frame.parts(low, min(high, frame.body)):
        if isinstance(part, Payload):
            box = part.tensor.box
            row = box.start[0] + part.start / part.tensor.bytes * box.shape[0] if box.start else 0.0
            return part.tensor.order, row
    return -1, 0.0


def content_crc(frame: Frame, step: int) -> bytes:
    """The trailer with the CRC of everything before it."""
    crc = 0
    for low in range(0, frame.body, step):
        for _, data in gather(frame, low, min(low + step, frame.body)):
            crc = zlib.crc32(data.data, crc)
    return crc_trailer(crc)
