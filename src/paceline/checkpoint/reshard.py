"""Write planned files: in chunks, with several threads, ordered so that source bytes shared by files are read once.

A file is written under a temporary name, synced, and renamed when complete. A journal (storage/transfer/journal.py)
records finished chunks, so that an interrupted run resumes. It is valid only until this machine is rebooted, because
chunks are not synced one by one.
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

from paceline.checkpoint.chunk_schedule import Chunk, FileWrite, chunks_in_read_order
from paceline.checkpoint.formats.ckpt import content_crc
from paceline.checkpoint.plan.file_plan import CrcBytes, FilePlan, Piece, PlannedTensor
from paceline.checkpoint.plan.read_plan import read_file_bytes
from paceline.checkpoint.plan.read_tensor import WINDOW
from paceline.checkpoint.tensor_files import BlockCache, LocalFile, RemoteFile, SourceFile
from paceline.checkpoint.writers import LocalWriter, RemoteWriter, Writer
from paceline.core.errors import PacelineError, UsageError
from paceline.storage.store_errors import FullError
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import Store
from paceline.storage.stores.local import FileStore
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.journal import Journal
from paceline.storage.transfer.retry import Backoff, retry_call
from paceline.storage.transfer.transfer_report import OnProgress, ProgressCounter
from paceline.storage.url import parse_url

DEFAULT_MEMORY = 1 << 30
_CHUNK = 16 << 20
_MAX_OPEN_FILES = 256
"""Target files that are open at a time."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class WriteOptions:
    memory: int = DEFAULT_MEMORY
    workers: int = field(default_factory=lambda: min(4, os.cpu_count() or 1))
    overwrite: bool = False
    progress: OnProgress | None = None

    def __post_init__(self) -> None:
        if self.memory < 64 << 20:
            raise UsageError(f"memory limit of {self.memory >> 20} MiB is too small", hint="at least 64 MiB")
        if self.workers < 1:
            raise UsageError("the number of workers must be at least 1")

    @property
    def threads(self) -> int:
        """Each thread holds a chunk and a window of a source file in memory."""
        return max(1, min(self.workers, self.memory // (WINDOW + _CHUNK)))

    @property
    def chunk(self) -> int:
        # A chunk, the source window it is copied from, and as much again for pages the kernel has not written yet.
        return max(1 << 20, min(_CHUNK, self.memory // (8 * self.workers)))


@dataclass
class WriteResult:
    """What was written, and notes for the user."""

    target: str
    files: int = 0
    bytes: int = 0
    same: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


def write_files(file_plans: Sequence[FilePlan], source: str, target: str, options: WriteOptions) -> WriteResult:
    """Write all files below `target`; files that already exist with the right content are kept."""
    started = time.monotonic()
    result = WriteResult(parse_url(target).text)
    _check_names(file_plans)
    store = open_store(target)
    # One journal per set of files: processes that write different ranks of one checkpoint do not block each other.
    journal = Journal(f"{source} {_digest_of_keys(file_plans)}", store.url)
    try:
        _FileWriter(store, journal, result, options).write(file_plans)
    finally:
        journal.close()
        store.close()
    result.seconds = time.monotonic() - started
    return result


class _FileWriter:
    def __init__(self, store: Store, journal: Journal, result: WriteResult, options: WriteOptions) -> None:
        self._store, self._journal, self._result, self._options = store, journal, result, options
        self._counter = ProgressCounter(options.progress)
        self._digests = _PlanDigests()
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def write(self, file_plans: Sequence[FilePlan]) -> None:
        left = [file_plan for file_plan in file_plans if not self._exists(file_plan)]
        self._counter.plan(len(left), sum(file_plan.size for file_plan in left))
        self._check_free_space(left)
        for first in range(0, len(left), _MAX_OPEN_FILES):
            self._write_batch(left[first : first + _MAX_OPEN_FILES])

    def _write_batch(self, file_plans: Sequence[FilePlan]) -> None:
        works: list[FileWrite] = []
        try:
            for file_plan in file_plans:
                works.append(FileWrite(file_plan, self._begin(file_plan), self._unfinished_item(file_plan)))
            self._run_threads(chunks_in_read_order(works))
        finally:
            for work in works:
                work.writer.close()

    def _run_threads(self, chunks: Iterator[Chunk]) -> None:
        threads = [threading.Thread(target=self._write_chunks, args=(chunks,)) for _ in range(self._options.threads)]
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

    def _write_chunks(self, chunks: Iterator[Chunk]) -> None:
        while self._error is None:
            with self._lock:
                chunk = next(chunks, None)
            if chunk is None:
                return
            try:
                self._write_chunk(chunk)
            except BaseException as error:
                self._error = self._error or error

    def _write_chunk(self, chunk: Chunk) -> None:
        work = chunk.work
        if chunk.length:
            mark = work.writer.put(chunk.number, chunk.low, chunk.high, work.file_plan)
            self._journal.record_part(work.item, chunk.number, mark)
            self._counter.add(0, chunk.length)
        if not work.chunk_written():
            return
        for file in {id(each): each for each in _sources(work.file_plan)}.values():
            file.check_unchanged()
        landed = work.writer.finish()
        self._journal.record_done([(self._finished_item(work.file_plan), landed)])
        with self._lock:
            self._result.files += 1
            self._result.bytes += work.file_plan.size
        self._counter.add(1, 0)

    def _begin(self, file_plan: FilePlan) -> Writer:
        item = self._unfinished_item(file_plan)
        resume = self._journal.unfinished_upload(item)
        if isinstance(self._store, FileStore):
            writer: Writer = LocalWriter(
                self._store.root / file_plan.key, file_plan, self._options.chunk, resume, _partial_suffix(item)
            )
        else:
            writer = RemoteWriter(self._store, file_plan, resume)
        if resume is None or not writer.done:
            self._journal.record_upload(item, writer.state)
        for number in writer.done:
            self._counter.add(0, writer.length(number))
        return writer

    def _unfinished_item(self, file_plan: FilePlan) -> StoredFile:
        """Journal entry of an unfinished file; invalid after a change of the chunk size or a reboot."""
        version = f"{self._digests.of(file_plan)}.{self._options.chunk}.{_boot_id()}"
        return StoredFile(file_plan.key, file_plan.size, version)

    def _finished_item(self, file_plan: FilePlan) -> StoredFile:
        """Journal entry of a finished file."""
        return StoredFile(file_plan.key, file_plan.size, self._digests.of(file_plan))

    def _exists(self, file_plan: FilePlan) -> bool:
        present = retry_call(Backoff(), lambda: self._store.stat(file_plan.key))
        if present is None:
            return False
        if self._journal.is_done(self._finished_item(file_plan), present) or self._is_same(file_plan, present):
            self._result.same += 1
            return True
        if not self._options.overwrite:
            raise UsageError(
                f"{self._store.url}/{file_plan.key} already exists with other content",
                hint="use --overwrite to replace it, or choose another directory",
            )
        return False

    def _is_same(self, file_plan: FilePlan, present: StoredFile) -> bool:
        if present.size != file_plan.size:
            return False
        file: SourceFile
        if isinstance(self._store, FileStore):
            file = LocalFile(self._store.root / file_plan.key)
        else:
            file = RemoteFile(self._store, present, BlockCache(32 << 20))
        step = self._options.chunk
        for low in range(0, file_plan.body, step):
            for at, data in read_file_bytes(file_plan, low, min(low + step, file_plan.body)):
                if not np.array_equal(np.frombuffer(file.read(at, len(data)), np.uint8), data):
                    return False
        if file_plan.trailer and bytes(file.read(file_plan.body, file_plan.trailer)) != content_crc(file_plan, step):
            return False
        self._journal.record_done([(self._finished_item(file_plan), present)])
        return True

    def _check_free_space(self, file_plans: Sequence[FilePlan]) -> None:
        """Fail now, not after an hour, if the disk is too small."""
        if not isinstance(self._store, FileStore) or not file_plans:
            return
        root = self._store.root
        while not root.exists():
            root = root.parent
        present = sum(
            LocalWriter.bytes_on_disk(
                self._store.root / file_plan.key, _partial_suffix(self._unfinished_item(file_plan))
            )
            for file_plan in file_plans
        )
        needed, free = sum(file_plan.size for file_plan in file_plans) - present, shutil.disk_usage(root).free
        if needed > free:
            raise FullError(
                f"{self._store.url}: not enough space: {needed / 1e9:,.2f} GB needed, {free / 1e9:,.2f} GB free",
                hint="free some space, or choose another directory",
            )


def _partial_suffix(item: StoredFile) -> str:
    return hashlib.blake2b(item.fingerprint.encode(), digest_size=6).hexdigest()


class _PlanDigests:
    """Digests of everything that determines a file's content: equal plans for equal sources have equal digests."""

    def __init__(self) -> None:
        self._files: dict[int, str] = {}
        self._tensors: dict[int, bytes] = {}
        self._pieces: dict[int, bytes] = {}

    def of(self, file_plan: FilePlan) -> str:
        if id(file_plan) not in self._files:
            found = hashlib.blake2b(digest_size=16)
            for _, part in file_plan.parts(0, file_plan.body):
                if isinstance(part, bytes):
                    found.update(part)
                elif isinstance(part, CrcBytes):
                    found.update(b"crc " + self._tensor(part.crc.tensor))
                else:
                    found.update(f"{part.start} {part.length} ".encode() + self._tensor(part.tensor))
            self._files[id(file_plan)] = found.hexdigest()
        return self._files[id(file_plan)]

    def _tensor(self, tensor: PlannedTensor) -> bytes:
        if id(tensor) not in self._tensors:
            found = hashlib.blake2b(f"{tensor.name} {tensor.dtype} {tensor.slice}".encode(), digest_size=16)
            for piece in tensor.pieces:
                found.update(self._piece(piece))
            if tensor.lora:
                update = tensor.lora
                found.update(str(update.scale).encode() + self._tensor(update.left) + self._tensor(update.right))
            self._tensors[id(tensor)] = found.digest()
        return self._tensors[id(tensor)]

    def _piece(self, piece: Piece) -> bytes:
        if id(piece) not in self._pieces:
            file, stored = piece.container.file, piece.stored
            identity = f"{piece.slice} {file.name} {file.fingerprint} {stored.extents} {stored.layout_strides}"
            self._pieces[id(piece)] = hashlib.blake2b(identity.encode(), digest_size=16).digest()
        return self._pieces[id(piece)]


def _digest_of_keys(file_plans: Sequence[FilePlan]) -> str:
    return hashlib.blake2b("\n".join(file_plan.key for file_plan in file_plans).encode(), digest_size=8).hexdigest()


def _sources(file_plan: FilePlan) -> Iterator[SourceFile]:
    for tensor in file_plan.tensors:
        yield from (piece.container.file for piece in tensor.pieces)


def _check_names(file_plans: Sequence[FilePlan]) -> None:
    keys = [file_plan.key for file_plan in file_plans]
    if len(set(keys)) != len(keys):
        raise PacelineError("two output files would have the same name")
    if not file_plans:
        raise PacelineError("nothing to write")


def _boot_id() -> str:
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
