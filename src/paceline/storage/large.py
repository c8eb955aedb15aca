"""A file of many parts: begun by the first that runs, finished by the last, resumed where a crash left it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from paceline.storage.checksum import composite, crc32, joined_crc32, likely_parts, md5, part_count, part_size
from paceline.storage.direct import aligned
from paceline.storage.passage import Passage
from paceline.storage.plan import Move
from paceline.storage.retry import Stopped
from paceline.storage.store import ChangedError, CorruptError, Item, StorageError, Sum, Upload

_LARGEST = 16 << 20
"""Of parts as others wrote them: a few per thread have to fit into memory."""


class LargeFile:
    """One move; its pieces run in any order, on any thread."""

    def __init__(self, passage: Passage, move: Move) -> None:
        self._passage, self._retry, self._move = passage, passage.retry, move
        told = passage.source.part(move.item) if passage.target.local else None
        # The parts it was written in: then its tag can be checked without reading the file again.
        self._part = told if told is not None and told <= _LARGEST else part_size(move.item.size)
        self._in_one_piece = told == move.item.size
        self._count = part_count(move.item.size, self._part)
        self._sums: dict[int, str] = {}
        self._crc: str | None = None
        """What the source keeps of the whole; parts are then summed up with CRC32, which costs a fifth of MD5."""
        self._total: Sum = md5
        self._open = self._count
        self._upload: Upload | None = None
        self._error: StorageError | Stopped | None = None
        self._lock = threading.Lock()

    def pieces(self) -> Iterator[tuple[int, Callable[[], None]]]:
        for number in range(self._count):
            yield self._length(number), lambda number=number: self._run(number)  # type: ignore[misc]

    def _length(self, number: int) -> int:
        return min(self._part, self._move.item.size - number * self._part)

    def _run(self, number: int) -> None:
        try:
            if self._error is None:
                self._move_part(self._begun(), number)
        except (StorageError, Stopped) as error:
            with self._lock:
                self._error = self._error or error
        with self._lock:
            self._open -= 1
            last = self._open == 0
        if last:
            self._end()

    def _begun(self) -> Upload:
        with self._lock:
            if self._error is not None:
                raise Stopped
            if self._upload is None:
                try:
                    self._upload = self._begin()
                except (StorageError, Stopped) as error:
                    self._error = error
                    raise
            return self._upload

    def _begin(self) -> Upload:
        passage, item, target = self._passage, self._move.item, self._move.target
        resume = passage.journal.resume(item)
        if passage.target.local:
            self._crc = self._retry(lambda: passage.source.crc32(item))
        # MD5s of parts are of no use where the source knows something of the whole.
        if self._crc is not None or self._in_one_piece:
            self._total = crc32
        upload = self._retry(lambda: passage.target.begin(target, item.size, self._part, resume, self._total))
        self._sums.update(upload.done)
        if resume is None or resume.state != upload.state:
            passage.journal.begun(item, upload.state)
        return upload

    def _move_part(self, upload: Upload, number: int) -> None:
        passage, item = self._passage, self._move.item
        length = self._length(number)
        if number not in upload.done:

            def move() -> str:
                data = passage.source.read(item, number * self._part, length, into=aligned(length))
                return upload.put(number, data)

            self._sums[number] = self._retry(move)
            passage.journal.part(item, number, self._sums[number])
        passage.counter.add(0, length)

    def _end(self) -> None:
        passage, move = self._passage, self._move
        if self._error is None and self._upload is not None:
            try:
                passage.arrived([(move, self._finish(self._upload))], counted=0)
                return
            except (StorageError, Stopped) as error:
                self._error = error
        if self._upload is not None:
            self._upload.leave()
        if isinstance(self._error, CorruptError):
            passage.journal.forget(move.item)
        if self._error is not None:
            passage.failed(move, self._error)

    def _finish(self, upload: Upload) -> Item:
        passage, item = self._passage, self._move.item
        sums = [self._sums[number] for number in range(self._count)]
        if passage.source.checks_on_read:
            self._retry(lambda: self._check(upload, sums))
        now = self._retry(lambda: passage.source.stat(item.key))
        if now != item:
            raise ChangedError(f"{passage.source.url}/{item.key}: changed while it was read")
        return self._retry(lambda: upload.finish(sums))

    def _check(self, upload: Upload, sums: Sequence[str]) -> None:
        """Against what the source says of itself: the whole, our parts, or the parts of whoever wrote it."""
        source, item = self._passage.source, self._move.item
        if self._crc is not None:
            if joined_crc32(sums, self._part, item.size) != self._crc:
                raise CorruptError(f"{source.url}/{item.key}: arrived damaged")
            return
        told = False
        for part in (self._part, None, part_size(item.size), *likely_parts(item.size)):
            expected = source.digest(item, part)
            if expected is not None:
                told = True
                if expected == (composite(sums) if part == self._part else upload.digest(part)):
                    return
        if told and source.vouches(item):
            raise CorruptError(f"{source.url}/{item.key}: arrived damaged")
        if told:
            self._read_again(sums)

    def _read_again(self, sums: Sequence[str]) -> None:
        """Where tags are no checksums, a second reading has to agree."""
        source, item = self._passage.source, self._move.item
        for number, expected in enumerate(sums):
            if self._total(source.read(item, number * self._part, self._length(number))) != expected:
                raise CorruptError(f"{source.url}/{item.key}: two readings differ")
