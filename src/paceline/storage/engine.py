"""Moves files in pieces through a pool of threads, in bounded memory, while the list of them is still being made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from paceline.storage.large import LargeFile
from paceline.storage.passage import Passage
from paceline.storage.plan import Move
from paceline.storage.retry import Backoff
from paceline.storage.small import SmallFiles

_SMALL = 8 << 20
"""Up to here a file is one piece."""
_GROUP_BYTES = 8 << 20
_GROUP = 16
"""Small files one thread takes at a time."""
_WAITING = 4
"""Pieces for each thread that are made before they can run: enough to go on with while a page is listed."""
_MEMORY = 256 << 20
"""Bytes of pieces held at a time, over all threads."""


@dataclass(frozen=True)
class Speed:
    """How hard to try, and how much at a time."""

    workers: int = 16
    backoff: Backoff = field(default_factory=Backoff)


class Engine:
    """One run over pages of moves; failures are noted in the passage, never raised, except the user's Ctrl-C."""

    def __init__(self, passage: Passage, workers: int) -> None:
        self._passage, self._workers = passage, workers
        self._memory = _Memory(_MEMORY)
        self._room = threading.Semaphore(workers * _WAITING)
        self._crash: BaseException | None = None

    def run(self, pages: Iterable[Sequence[Move]]) -> None:
        with ThreadPoolExecutor(self._workers) as pool:
            try:
                for size, piece in self._pieces(pages):
                    self._room.acquire()
                    self._submit(pool, size, piece)
                for _ in range(self._workers * _WAITING):
                    self._room.acquire()  # all pieces are done when all room is free again
            except BaseException:
                # Ctrl-C, or the listing failed: pieces on their way end, those that wait give up; the journal knows
                # what is done.
                self._passage.retry.stop.set()
                raise
        if self._crash is not None:
            raise self._crash

    def _submit(self, pool: ThreadPoolExecutor, size: int, piece: Callable[[], None]) -> None:
        def work() -> None:
            self._memory.take(size)
            try:
                piece()
            finally:
                self._memory.give(size)

        def free(done: Future[None]) -> None:
            if (error := done.exception()) is not None:
                self._crash = self._crash or error
                self._passage.retry.stop.set()
            self._room.release()

        pool.submit(work).add_done_callback(free)

    def _pieces(self, pages: Iterable[Sequence[Move]]) -> Iterator[tuple[int, Callable[[], None]]]:
        for page in pages:
            # Few files are spread over all threads.
            most = max(self._passage.source.batch, min(_GROUP, len(page) // (self._workers * 4)))
            yield from self._page(page, most)

    def _page(self, moves: Sequence[Move], most: int) -> Iterator[tuple[int, Callable[[], None]]]:
        group: list[Move] = []
        held = 0
        for move in moves:
            if self._passage.retry.stop.is_set():
                self._passage.skipped(move)
            elif move.item.size > _SMALL:
                yield from LargeFile(self._passage, move).pieces()
            else:
                group.append(move)
                held += move.item.size
                if len(group) >= most or held >= _GROUP_BYTES:
                    yield held, SmallFiles(self._passage, group).run
                    group, held = [], 0
        if group:
            yield held, SmallFiles(self._passage, group).run


class _Memory:
    """A budget of bytes; a piece larger than all of it still passes, alone."""

    def __init__(self, most: int) -> None:
        self._most, self._used = most, 0
        self._changed = threading.Condition()

    def take(self, size: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._used == 0 or self._used + size <= self._most)
            self._used += size

    def give(self, size: int) -> None:
        with self._changed:
            self._used -= size
            self._changed.notify_all()
