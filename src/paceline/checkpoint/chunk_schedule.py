"""Order of writing: chunks of all files, sorted by the source bytes they read."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from paceline.checkpoint.plan.file_plan import FilePlan, TensorBytes
from paceline.checkpoint.writers import Writer
from paceline.storage.stored_file import StoredFile


@dataclass
class FileWrite:
    """A file being written."""

    file_plan: FilePlan
    writer: Writer
    item: StoredFile
    left: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def chunk_written(self) -> bool:
        """Count a chunk as written; True if it was the last."""
        with self._lock:
            self.left -= 1
            return self.left == 0


@dataclass(frozen=True)
class Chunk:
    work: FileWrite
    number: int
    low: int
    high: int

    @property
    def length(self) -> int:
        return self.high - self.low


def chunks_in_read_order(works: Sequence[FileWrite]) -> Iterator[Chunk]:
    """Unwritten chunks, ordered so that all files advance through the parameters together."""
    found: list[tuple[tuple[int, float], int, Chunk]] = []
    for position, work in enumerate(works):
        unwritten = [n for n in range(work.writer.count) if n not in work.writer.done]
        # A file whose chunks were all written before an interruption still has to be renamed.
        work.left = max(1, len(unwritten))
        if not unwritten:
            found.append(((0, 0.0), position, Chunk(work, 0, 0, 0)))
        for number in unwritten:
            low = number * work.writer.chunk
            high = low + work.writer.length(number)
            found.append((_order(work.file_plan, low, high), position, Chunk(work, number, low, high)))
    found.sort(key=lambda each: each[:2])
    return iter([chunk for _, _, chunk in found])


def _order(file_plan: FilePlan, low: int, high: int) -> tuple[int, float]:
    """First parameter in a chunk, and the position in it along its first axis."""
    for _, part in file_plan.parts(low, min(high, file_plan.body)):
        if isinstance(part, TensorBytes):
            tensor_slice = part.tensor.slice
            row = (
                tensor_slice.start[0] + part.start / part.tensor.bytes * tensor_slice.shape[0]
                if tensor_slice.start
                else 0.0
            )
            return part.tensor.order, row
    return -1, 0.0
