"""Moves files in pieces through a pool of threads: bounded memory, retried, resumable, verified."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from paceline.storage.checksum import composite, crc32, joined_crc32, likely_parts, md5, part_count, part_size
from paceline.storage.journal import Journal
from paceline.storage.plan import Move
from paceline.storage.report import Counter, Failure, Report
from paceline.storage.retry import Backoff, Gate, Retry, Stopped
from paceline.storage.store import (
    ChangedError,
    CorruptError,
    Data,
    FullError,
    Item,
    StorageError,
    Store,
    TransientError,
    Upload,
)

_SMALL = 8 << 20
"""Up to here a file is one piece."""
_BATCH_BYTES = 8 << 20
_GROUP = 16
"""Small files one thread takes at a time: handing over each by itself costs more than moving it."""
_CROWD = 4
"""From here on, small files are made visible together."""
_MEMORY = 256 << 20
"""Bytes of pieces held at a time, over all threads."""


@dataclass(frozen=True)
class Speed:
    """How hard to try, and how much at a time."""

    workers: int = 16
    backoff: Backoff = field(default_factory=Backoff)


class Engine:
    """One run over a list of moves; failures are collected, never raised, except the user's Ctrl-C."""

    def __init__(self, source: Store, target: Store, journal: Journal, report: Report, counter: Counter) -> None:
        self._source, self._target, self._journal = source, target, journal
        self._report, self._counter = report, counter
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._landed: dict[str, Item] = {}
        self._crash: BaseException | None = None

    def run(self, moves: Sequence[Move], speed: Speed) -> dict[str, Item]:
        """Move everything; returns what arrived (source key → item at the target)."""
        gate = Gate(speed.workers)
        self._retry = Retry(speed.backoff, gate, self._stop)
        room = threading.Semaphore(speed.workers * 4)
        memory = _Memory(_MEMORY)
        with ThreadPoolExecutor(speed.workers) as pool:
            try:
                for size, piece in self._pieces(moves, speed.workers):
                    room.acquire()
                    self._submit(pool, piece, room, memory, size)
                for _ in range(speed.workers * 4):
                    room.acquire()  # all pieces are done when all room is free again
            except BaseException:
                # Ctrl-C: pieces on their way end, those that wait give up; the journal knows what is done.
                self._stop.set()
                raise
        if self._crash is not None:
            raise self._crash
        self._report.retries += self._retry.retries
        return self._landed

    def _submit(
        self, pool: ThreadPoolExecutor, piece: Callable[[], None], room: threading.Semaphore, memory: _Memory, size: int
    ) -> None:
        def work() -> None:
            memory.take(size)
            try:
                piece()
            finally:
                memory.give(size)

        def free(done: Future[None]) -> None:
            if (error := done.exception()) is not None:
                self._crash = self._crash or error
                self._stop.set()
            room.release()

        pool.submit(work).add_done_callback(free)

    def _pieces(self, moves: Sequence[Move], workers: int) -> Iterator[tuple[int, Callable[[], None]]]:
        # Few files are spread over all threads.
        most = max(self._source.batch, min(_GROUP, len(moves) // (workers * 4)))
        group: list[Move] = []
        held = 0
        for move in moves:
            if self._stop.is_set():
                self._fail(move, "not tried: the transfer was stopped")
            elif move.item.size > _SMALL:
                yield from _Large(self, move).pieces()
            else:
                group.append(move)
                held += move.item.size
                if len(group) >= most or held >= _BATCH_BYTES:
                    yield held, self._small(group)
                    group, held = [], 0
        if group:
            yield held, self._small(group)

    def _small(self, group: Sequence[Move]) -> Callable[[], None]:
        at_once = self._source.batch
        together = len(group) >= _CROWD
        starts = range(0, len(group), at_once)
        batches = [_Batch(self, group[start : start + at_once], together=together) for start in starts]

        def run() -> None:
            for batch in batches:
                batch.run()
            for batch in batches:
                batch.land()

        return run

    # -- what pieces use ---------------------------------------------------------------------------------------------

    def arrived(self, move: Move, landed: Item, *, counted: int) -> None:
        self._journal.done(move.item, landed)
        with self._lock:
            self._landed[move.item.key] = landed
            self._report.moved += 1
            self._report.moved_bytes += move.item.size
        self._counter.add(1, counted)

    def failed(self, move: Move, error: StorageError | Stopped) -> None:
        if isinstance(error, Stopped):
            self._fail(move, "not tried: the transfer was stopped")
            return
        if isinstance(error, FullError):
            self._stop.set()
        hint = f" ({error.hint})" if error.hint else ""
        self._fail(move, f"{error}{hint}", again=isinstance(error, ChangedError | CorruptError))

    def _fail(self, move: Move, reason: str, *, again: bool = False) -> None:
        with self._lock:
            self._report.failures.append(Failure(move.item.key, reason, again))
        self._counter.add(1, 0)


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


class _Batch:
    """Small files that are read with one request."""

    def __init__(self, engine: Engine, moves: Sequence[Move], *, together: bool = False) -> None:
        self._engine, self._together = engine, together
        self._staged: list[tuple[Move, Callable[[], Item]]] = []
        self._left = {move.item.key: move for move in moves}

    def run(self) -> None:
        try:
            self._engine._retry(self._read)
        except (StorageError, Stopped) as error:
            if len(self._left) > 1 and not isinstance(error, Stopped):
                # One bad file must not fail its neighbours.
                for move in list(self._left.values()):
                    _Batch(self._engine, [move]).run()
            else:
                for move in self._left.values():
                    self._engine.failed(move, error)

    def _read(self) -> None:
        for item, data in self._engine._source.read_many([move.item for move in self._left.values()]):
            self._write(self._left[item.key], data)
            del self._left[item.key]

    def _write(self, move: Move, data: Data) -> None:
        found = md5(data)
        self._check(move, found)
        target = self._engine._target
        if self._together:
            self._staged.append((move, target.stage(move.target, data, found)))
        else:
            self._engine.arrived(move, target.write(move.target, data, found), counted=move.item.size)

    def land(self) -> None:
        for move, land in self._staged:
            try:
                self._engine.arrived(move, land(), counted=move.item.size)
            except TransientError:
                _Batch(self._engine, [move]).run()
            except StorageError as error:
                self._engine.failed(move, error)

    def _check(self, move: Move, found: str) -> None:
        """Against what the source says of itself, where that is free."""
        source, item = self._engine._source, move.item
        if source.batch > 1 or not source.checks_on_read:
            return
        told = source.digest(item, None)
        if told is not None and told != found:
            if source.vouches(item):
                raise TransientError(f"{source.url}/{item.key}: arrived damaged")
            if md5(source.read(item, 0, item.size)) != found:
                raise TransientError(f"{source.url}/{item.key}: two readings differ")


class _Large:
    """A file of many parts; the first piece to run begins it, the last one finishes it."""

    def __init__(self, engine: Engine, move: Move) -> None:
        self._engine, self._move = engine, move
        self._part = part_size(move.item.size)
        self._count = part_count(move.item.size, self._part)
        self._sums: dict[int, str] = {}
        self._crc: str | None = None
        """What the source keeps of the whole; parts are then summed up with CRC32, which costs a fifth of MD5."""
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
        engine, item = self._engine, self._move.item
        with self._lock:
            if self._error is not None:
                raise Stopped
            if self._upload is None:
                resume = engine._journal.resume(item)
                target, size = self._move.target, item.size
                try:
                    if engine._target.local:
                        self._crc = engine._retry(lambda: engine._source.crc32(item))
                    total = md5 if self._crc is None else crc32
                    self._upload = engine._retry(lambda: engine._target.begin(target, size, self._part, resume, total))
                except (StorageError, Stopped) as error:
                    self._error = error
                    raise
                self._sums.update(self._upload.done)
                if resume is None or resume.state != self._upload.state:
                    engine._journal.begun(item, self._upload.state)
            return self._upload

    def _move_part(self, upload: Upload, number: int) -> None:
        engine, item = self._engine, self._move.item
        length = self._length(number)
        if number not in upload.done:

            def move() -> str:
                return upload.put(number, engine._source.read(item, number * self._part, length))

            self._sums[number] = engine._retry(move)
            engine._journal.part(item, number, self._sums[number])
        engine._counter.add(0, length)

    def _end(self) -> None:
        engine, move = self._engine, self._move
        if self._error is None and self._upload is not None:
            try:
                engine.arrived(move, self._finish(self._upload), counted=0)
                return
            except (StorageError, Stopped) as error:
                self._error = error
        if self._upload is not None:
            self._upload.leave()
        if isinstance(self._error, CorruptError):
            engine._journal.forget(move.item)
        if self._error is not None:
            engine.failed(move, self._error)

    def _finish(self, upload: Upload) -> Item:
        engine, item = self._engine, self._move.item
        sums = [self._sums[number] for number in range(self._count)]
        if engine._source.checks_on_read:
            engine._retry(lambda: self._check(upload, sums))
        now = engine._retry(lambda: engine._source.stat(item.key))
        if now != item:
            raise ChangedError(f"{engine._source.url}/{item.key}: changed while it was read")
        return engine._retry(lambda: upload.finish(sums))

    def _check(self, upload: Upload, sums: Sequence[str]) -> None:
        """Against what the source says of itself: the whole, our parts, or the parts of whoever wrote it."""
        source, item = self._engine._source, self._move.item
        if self._crc is not None:
            if joined_crc32(sums, self._part, item.size) != self._crc:
                raise CorruptError(f"{source.url}/{item.key}: arrived damaged")
            return
        told = False
        for part in (self._part, None, *likely_parts(item.size)):
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
        source, item = self._engine._source, self._move.item
        for number, expected in enumerate(sums):
            if md5(source.read(item, number * self._part, self._length(number))) != expected:
                raise CorruptError(f"{source.url}/{item.key}: two readings differ")
