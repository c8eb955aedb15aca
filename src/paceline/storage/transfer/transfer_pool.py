"""Thread pool of a transfer: large files in parts and small files in batches, in bounded memory, while listing goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Callable, Tuple

from paceline.storage.transfer.multipart import MultipartFile
from paceline.storage.transfer.retry import Backoff
from paceline.storage.transfer.small_files import SmallFileBatch
from paceline.storage.transfer.transfer_context import TransferContext
from paceline.storage.transfer.transfer_plan import FileTransfer

_SMALL_FILE = 8 << 20
"""Larger files are transferred in parts."""
_BATCH_BYTES = 8 << 20
_BATCH_FILES = 16
"""Small files one thread takes at a time."""
_QUEUED_PER_WORKER = 4
"""Tasks prepared ahead: enough to keep the threads busy while the next page is listed."""
_MEMORY = 256 << 20
"""Bytes of data held at a time, over all threads."""

_Task = Tuple[int, Callable[[], None]]
"""Size in memory, and what to run."""


@dataclass(frozen=True)
class TransferLimits:
    """How many files at a time, and how long to retry."""

    workers: int = 16
    backoff: Backoff = field(default_factory=Backoff)


class TransferPool:
    """Transfers pages of files; failures are recorded in the context and never raised, except Ctrl-C."""

    def __init__(self, context: TransferContext, workers: int) -> None:
        self._context, self._workers = context, workers
        self._memory = _MemoryBudget(_MEMORY)
        self._free_slots = threading.Semaphore(workers * _QUEUED_PER_WORKER)
        self._crash: BaseException | None = None

    def run(self, pages: Iterable[Sequence[FileTransfer]]) -> None:
        with ThreadPoolExecutor(self._workers) as pool:
            try:
                for size, task in self._tasks(pages):
                    self._free_slots.acquire()
                    self._submit(pool, size, task)
                for _ in range(self._workers * _QUEUED_PER_WORKER):
                    self._free_slots.acquire()  # all tasks are done when all slots are free again
            except BaseException:
                # Ctrl-C, or the listing failed: running tasks finish, waiting ones give up; the journal keeps what is
                # done.
                self._context.retry.stop.set()
                raise
        if self._crash is not None:
            raise self._crash

    def _submit(self, pool: ThreadPoolExecutor, size: int, task: Callable[[], None]) -> None:
        def run() -> None:
            self._memory.acquire(size)
            try:
                task()
            finally:
                self._memory.release(size)

        def on_done(future: Future[None]) -> None:
            if (error := future.exception()) is not None:
                self._crash = self._crash or error
                self._context.retry.stop.set()
            self._free_slots.release()

        pool.submit(run).add_done_callback(on_done)

    def _tasks(self, pages: Iterable[Sequence[FileTransfer]]) -> Iterator[_Task]:
        for page in pages:
            # Smaller batches for few files, so that all threads get some.
            batch_files = min(_BATCH_FILES, len(page) // (self._workers * 4))
            yield from self._tasks_of_page(page, max(self._context.source.read_batch_size, batch_files))

    def _tasks_of_page(self, moves: Sequence[FileTransfer], batch_files: int) -> Iterator[_Task]:
        batch: list[FileTransfer] = []
        size = 0
        for move in moves:
            if self._context.retry.stop.is_set():
                self._context.record_skipped(move)
            elif move.item.size > _SMALL_FILE:
                yield from MultipartFile(self._context, move).parts()
            else:
                batch.append(move)
                size += move.item.size
                if len(batch) >= batch_files or size >= _BATCH_BYTES:
                    yield size, SmallFileBatch(self._context, batch).run
                    batch, size = [], 0
        if batch:
            yield size, SmallFileBatch(self._context, batch).run


class _MemoryBudget:
    """A budget of bytes shared by threads; a task larger than the whole budget runs alone."""

    def __init__(self, most: int) -> None:
        self._most, self._used = most, 0
        self._changed = threading.Condition()

    def acquire(self, size: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._used == 0 or self._used + size <= self._most)
            self._used += size

    def release(self, size: int) -> None:
        with self._changed:
            self._used -= size
            self._changed.notify_all()
