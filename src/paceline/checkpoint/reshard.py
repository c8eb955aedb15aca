"""Writes planned files: in chunks, by several threads, in step, so that what several files need is read once.

A file is written beside its name, synced, and renamed when all of it is there. A journal (storage/journal.py) knows
the chunks that are done, so that a killed run goes on where it was; it is believed only while this machine has not been
restarted, because chunks are not synced one by one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paceline.checkpoint.chunks import Chunk, Work, chunks_in_step, content_crc
from paceline.checkpoint.files import BlockCache, LocalFile, RemoteFile, SourceFile
from paceline.checkpoint.frame import Frame, Piece, Wanted
from paceline.checkpoint.gather import WINDOW, gather
from paceline.checkpoint.writers import LocalWriter, RemoteWriter, Writer
from paceline.errors import PacelineError, UsageError
from paceline.storage.file import FileStore
from paceline.storage.journal import Journal
from paceline.storage.location import parse
from paceline.storage.opening import open_store
from paceline.storage.report import Counter, OnProgress
from paceline.storage.retry import Backoff, patiently
from paceline.storage.store import FullError, Item, Store

BUDGET = 1 << 30
_CHUNK = 16 << 20
_AT_ONCE = 256
"""Files open at a time."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Options:
    memory: int = BUDGET
    workers: int = field(default_factory=lambda: min(4, os.cpu_count() or 1))
    overwrite: bool = False
    progress: OnProgress | None = None

    def __post_init__(self) -> None:
        if self.memory < 64 << 20:
            raise UsageError(f"{self.memory >> 20} MiB are too little memory", hint="64 MiB at least")
        if self.workers < 1:
            raise UsageError("at least one worker is needed")

    @property
    def threads(self) -> int:
        """Each has a chunk and a window of a source in its hands."""
        return max(1, min(self.workers, self.memory // (WINDOW + _CHUNK)))

    @property
    def chunk(self) -> int:
        # A chunk, the window of a source it is copied from, and as much again while the kernel lags behind.
        return max(1 << 20, min(_CHUNK, self.memory // (8 * self.workers)))


@dataclass
class Outcome:
    """What was written, and what to tell people."""

    target: str
    files: int = 0
    bytes: int = 0
    same: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


def write_frames(frames: Sequence[Frame], source: str, target: str, options: Options) -> Outcome:
    """Write all files below `target`; those that are there with the right content stay."""
    started = time.monotonic()
    outcome = Outcome(parse(target).url)
    _refuse_twins(frames)
    store = open_store(target)
    # Two processes that write different ranks of one checkpoint do not wait for each other.
    journal = Journal(f"{source} {_digest_of_keys(frames)}", store.url)
    try:
        _Run(store, journal, outcome, options).write(frames)
    finally:
        journal.close()
        store.close()
    outcome.seconds = time.monotonic() - started
    return outcome


class _Run:
    def __init__(self, store: Store, journal: Journal, outcome: Outcome, options: Options) -> None:
        self._store, self._journal, self._outcome, self._options = store, journal, outcome, options
        self._counter = Counter(options.progress)
        self._digests = _Digests()
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def write(self, frames: Sequence[Frame]) -> None:
        left = [frame for frame in frames if not self._is_there(frame)]
        self._counter.plan(len(left), sum(frame.size for frame in left))
        self._check_room(left)
        for first in range(0, len(left), _AT_ONCE):
            self._write_some(left[first : first + _AT_ONCE])

    def _write_some(self, frames: Sequence[Frame]) -> None:
        works: list[Work] = []
        try:
            for frame in frames:
                works.append(Work(frame, self._begin(frame), self._item(frame)))
            self._run_threads(chunks_in_step(works))
        finally:
            for work in works:
                work.writer.leave()

    def _run_threads(self, chunks: Iterator[Chunk]) -> None:
        threads = [threading.Thread(target=self._work, args=(chunks,)) for _ in range(self._options.threads)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)
        except BaseException as error:
            self._error = self._error or error
            raise
        finally:
            for thread in threads:
                thread.join()
        if self._error is not None:
            raise self._error

    def _work(self, chunks: Iterator[Chunk]) -> None:
        while self._error is None:
            with self._lock:
                chunk = next(chunks, None)
            if chunk is None:
                return
            try:
                self._do(chunk)
            except BaseException as error:
                self._error = self._error or error

    def _do(self, chunk: Chunk) -> None:
        work = chunk.work
        if chunk.length:
            mark = work.writer.put(chunk.number, chunk.low, chunk.high, work.frame)
            self._journal.part(work.item, chunk.number, mark)
            self._counter.add(0, chunk.length)
        if not work.finished_one():
            return
        for file in {id(each): each for each in _sources(work.frame)}.values():
            file.check_unchanged()
        landed = work.writer.finish()
        self._journal.done([(self._lasting(work.frame), landed)])
        with self._lock:
            self._outcome.files += 1
            self._outcome.bytes += work.frame.size
        self._counter.add(1, 0)

    def _begin(self, frame: Frame) -> Writer:
        item = self._item(frame)
        resume = self._journal.resume(item)
        if isinstance(self._store, FileStore):
            writer: Writer = LocalWriter(self._store.root / frame.key, frame, self._options.chunk, resume, _plan(item))
        else:
            writer = RemoteWriter(self._store, frame, resume)
        if resume is None or not writer.done:
            self._journal.begun(item, writer.state)
        for number in writer.done:
            self._counter.add(0, writer.length(number))
        return writer

    def _item(self, frame: Frame) -> Item:
        """Of a file on its way; another chunk size or a restarted machine makes it another one."""
        version = f"{self._digests.of(frame)}.{self._options.chunk}.{_boot()}"
        return Item(frame.key, frame.size, version)

    def _lasting(self, frame: Frame) -> Item:
        """Of a finished file."""
        return Item(frame.key, frame.size, self._digests.of(frame))

    def _is_there(self, frame: Frame) -> bool:
        present = patiently(Backoff(), lambda: self._store.stat(frame.key))
        if present is None:
            return False
        if self._journal.is_done(self._lasting(frame), present) or self._is_same(frame, present):
            self._outcome.same += 1
            return True
        if not self._options.overwrite:
            raise UsageError(
                f"{self._store.url}/{frame.key}: is there, with another content",
                hint="--overwrite replaces it; or give another directory",
            )
        return False

    def _is_same(self, frame: Frame, present: Item) -> bool:
        if present.size != frame.size:
            return False
        file: SourceFile
        if isinstance(self._store, FileStore):
            file = LocalFile(self._store.root / frame.key)
        else:
            file = RemoteFile(self._store, present, BlockCache(32 << 20))
        step = self._options.chunk
        for low in range(0, frame.body, step):
            for at, data in gather(frame, low, min(low + step, frame.body)):
                if not np.array_equal(np.frombuffer(file.read(at, len(data)), np.uint8), data):
                    return False
        if frame.trailer and bytes(file.read(frame.body, frame.trailer)) != content_crc(frame, step):
            return False
        self._journal.done([(self._lasting(frame), present)])
        return True

    def _check_room(self, frames: Sequence[Frame]) -> None:
        """Find out now, not after an hour, that the disk is too small."""
        if not isinstance(self._store, FileStore) or not frames:
            return
        root = self._store.root
        while not root.exists():
            root = root.parent
        held = sum(LocalWriter.held(self._store.root / frame.key, _plan(self._item(frame))) for frame in frames)
        needed, free = sum(frame.size for frame in frames) - held, shutil.disk_usage(root).free
        if needed > free:
            raise FullError(
                f"{self._store.url}: {needed / 1e9:,.2f} GB are needed, {free / 1e9:,.2f} GB are free",
                hint="free some, or give another directory",
            )


def _plan(item: Item) -> str:
    return hashlib.blake2b(item.fingerprint.encode(), digest_size=6).hexdigest()


class _Digests:
    """Of everything that decides a file's content; the same plan for the same sources has the same one."""

    def __init__(self) -> None:
        self._frames: dict[int, str] = {}
        self._tensors: dict[int, bytes] = {}
        self._pieces: dict[int, bytes] = {}

    def of(self, frame: Frame) -> str:
        if id(frame) not in self._frames:
            found = hashlib.blake2b(digest_size=16)
            for _, part in frame.parts(0, frame.body):
                if isinstance(part, bytes):
                    found.update(part)
                else:
                    found.update(f"{part.start} {part.length} ".encode() + self._tensor(part.tensor))
            self._frames[id(frame)] = found.hexdigest()
        return self._frames[id(frame)]

    def _tensor(self, tensor: Wanted) -> bytes:
        if id(tensor) not in self._tensors:
            found = hashlib.blake2b(f"{tensor.name} {tensor.dtype} {tensor.box}".encode(), digest_size=16)
            for piece in tensor.pieces:
                found.update(self._piece(piece))
            if tensor.addition:
                added = tensor.addition
                found.update(str(added.scale).encode() + self._tensor(added.left) + self._tensor(added.right))
            self._tensors[id(tensor)] = found.digest()
        return self._tensors[id(tensor)]

    def _piece(self, piece: Piece) -> bytes:
        if id(piece) not in self._pieces:
            file, stored = piece.container.file, piece.stored
            told = f"{piece.box} {file.name} {file.fingerprint} {stored.extents} {stored.layout_strides}"
            self._pieces[id(piece)] = hashlib.blake2b(told.encode(), digest_size=16).digest()
        return self._pieces[id(piece)]


def _digest_of_keys(frames: Sequence[Frame]) -> str:
    return hashlib.blake2b("\n".join(frame.key for frame in frames).encode(), digest_size=8).hexdigest()


def _sources(frame: Frame) -> Iterator[SourceFile]:
    for tensor in frame.tensors:
        yield from (piece.container.file for piece in tensor.pieces)


def _refuse_twins(frames: Sequence[Frame]) -> None:
    keys = [frame.key for frame in frames]
    if len(set(keys)) != len(keys):
        raise PacelineError("two files would get one name")
    if not frames:
        raise PacelineError("there is nothing to write")


def _boot() -> str:
    return _BOOT.read_text().strip() if _BOOT.exists() else ""
