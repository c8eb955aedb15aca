"""Ingest: fills the store with the sections that a table needs, many ranks at a time; a broken section fails alone."""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from paceline.core.errors import is_interrupt
from paceline.core.message import Sentence, message
from paceline.core.scratch_directory import scratch_directory
from paceline.core.text_encoding import printable
from paceline.formats.base import RecordingSection
from paceline.run.evidence.file_ends import cut_off
from paceline.run.executors.budget import task_budget
from paceline.run.executors.executor import CrashedTask, Executor
from paceline.run.executors.processes import ProcessExecutor
from paceline.run.io_endpoints import ReadSource, StoreTarget
from paceline.run.read_warning import ReadWarning
from paceline.run.relative_path_pickle import dumps, loads
from paceline.run.source_selection import SelectedRecording
from paceline.run.tables.batch import BatchSink, StoreWriteError, disk_error_reason, open_batch
from paceline.run.tables.store import READ_VERSION, ParquetFile, RunStore, StoredSection, StoredWarning
from paceline.storage.file_tree import File, Tree

BATCH_BYTES = 192 << 20
BATCH_SECTIONS = 512
POOL_BYTES = 384 << 20
SAVE_EVERY_S = 20.0
"""How much reading a killed process may lose."""


@dataclass(frozen=True)
class ReadProgress:
    """How much has been read, in bytes and in ranks of which everything was read."""

    done: int
    total: int
    ranks: int = 0
    ranks_total: int = 0


OnReadProgress = Callable[[ReadProgress], None]


@dataclass(frozen=True)
class ReadTask:
    """One section to be read."""

    key: str
    number: int
    fingerprint: str
    rank: int | None
    tables: frozenset[str]
    section: RecordingSection

    @property
    def size(self) -> int:
        """Bytes to be parsed."""
        return round(sum(file.size for file in self.section.files) * self.section.parsed)


@dataclass(frozen=True)
class ReadResult:
    """What was stored for some tasks."""

    units: dict[str, StoredSection]
    files: dict[str, ParquetFile]
    size: int


@dataclass(frozen=True)
class BatchTask:
    """A batch of read tasks as it is sent to a worker."""

    tasks: bytes
    """Pickled, with paths relative to the source's root."""
    keys: tuple[str, ...]
    source: ReadSource
    target: StoreTarget


@dataclass(frozen=True)
class FailedBatch:
    """A batch that crashed every worker that read it."""

    keys: tuple[str, ...]
    reason: Sentence


def fill_store(
    store: RunStore,
    source: ReadSource,
    selected: list[SelectedRecording],
    tables: frozenset[str],
    *,
    executor: Executor,
    progress: OnReadProgress | None = None,
) -> None:
    """Read what these tables need and the store does not have yet; forget what is no longer in the source."""
    if not _removed_units(store, selected) and not any(True for _ in _unread(store, selected, tables)):
        return  # nothing to write: a complete store needs no write permission
    with store.writing():
        removed = _forget_removed_units(store, selected)
        tasks = {task.key: task for task in _read_tasks(store, selected, tables)}
        if not tasks:
            if removed:
                store.save()
            return
        # Decided once: a section that crashed a process must not be read by this process because little is left.
        small = sum(task.size for task in tasks.values()) <= POOL_BYTES
        if small and isinstance(executor, ProcessExecutor):
            # Starting a process takes half a CPU second: more than it would save.
            executor = ProcessExecutor(1, isolated=executor.is_isolated or store.reader_died)
        with store.target(remote=executor.is_remote) as target, store.being_read():
            counter = _ProgressCounter(tasks, progress)
            _fill_batches(store, tasks, counter, lambda batches: _run_batches(batches, source, target, executor))


def _fill_batches(
    store: RunStore,
    tasks: dict[str, ReadTask],
    counter: _ProgressCounter,
    run: Callable[[list[list[ReadTask]]], Iterator[ReadResult | FailedBatch]],
) -> None:
    """A batch that crashes its workers is read again section by section; a section that does so alone is skipped."""
    saved = time.monotonic()
    batches = list(_batches(tasks.values()))
    try:
        while batches:
            failed: list[FailedBatch] = []
            for result in run(batches):
                if isinstance(result, FailedBatch) and len(result.keys) > 1:
                    failed.append(result)
                    continue
                if isinstance(result, FailedBatch):
                    result = _skipped(tasks[result.keys[0]], result.reason)
                store.manifest.units.update(result.units)
                store.manifest.files.update(result.files)
                counter.advance(result)
                if time.monotonic() - saved > SAVE_EVERY_S:
                    store.save()
                    saved = time.monotonic()
            batches = [[tasks[key]] for each in failed for key in each.keys]
    finally:
        store.save()


def _skipped(task: ReadTask, reason: Sentence) -> ReadResult:
    files = task.section.files
    name = printable(files[0].relative) if files else None
    warning = StoredWarning(task.rank, name, message("skipped", error=reason), lost=True)
    section = StoredSection(task.number, task.fingerprint, task.rank, tuple(sorted(task.tables)), (warning,))
    return ReadResult({task.key: section}, {}, task.size)


class _ProgressCounter:
    """Counts bytes, and ranks of which all sections were read."""

    def __init__(self, tasks: dict[str, ReadTask], progress: OnReadProgress | None) -> None:
        self._tasks, self._progress = tasks, progress
        self._open = Counter(task.rank for task in tasks.values() if task.rank is not None)
        self._ranks = len(self._open)
        self._done, self._total = 0, sum(task.size for task in tasks.values())

    def advance(self, result: ReadResult) -> None:
        self._done += result.size
        for key in result.units:
            rank = self._tasks[key].rank
            if rank is not None:
                self._open[rank] -= 1
        self._open = +self._open
        if self._progress:
            self._progress(ReadProgress(self._done, self._total, self._ranks - len(self._open), self._ranks))


# -- what has to be read ----------------------------------------------------------------------------------------------


def section_key(entry: SelectedRecording, section: RecordingSection) -> str:
    """The section's name in the store."""
    recording = entry.recording
    return printable(f"{recording.format}:{recording.root}:{recording.rank}:{section.name}")


def _fingerprint(entry: SelectedRecording, section: RecordingSection) -> str:
    digest = hashlib.sha256(repr(sorted(entry.tables & section.tables)).encode())
    for file in section.files:
        digest.update(f"{file.relative}\0{file.size}\0{file.mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _removed_units(store: RunStore, selected: list[SelectedRecording]) -> set[str]:
    """Keys in the store whose sections are no longer in the source."""
    return set(store.manifest.units) - {
        section_key(entry, section) for entry in selected for section in entry.recording.sections
    }


def _forget_removed_units(store: RunStore, selected: list[SelectedRecording]) -> bool:
    removed = _removed_units(store, selected)
    for key in removed:
        del store.manifest.units[key]
    return bool(removed)


def _read_tasks(store: RunStore, selected: list[SelectedRecording], tables: frozenset[str]) -> Iterator[ReadTask]:
    for entry, section, fingerprint in _unread(store, selected, tables):
        number = store.manifest.next_number
        store.manifest.next_number += 1
        supplied = section.tables & entry.tables
        yield ReadTask(section_key(entry, section), number, fingerprint, entry.recording.rank, supplied, section)


def _unread(
    store: RunStore, selected: list[SelectedRecording], tables: frozenset[str]
) -> Iterator[tuple[SelectedRecording, RecordingSection, str]]:
    """Sections that these tables need and that are not in the store in their present version, with fingerprints."""
    for entry in selected:
        for section in entry.recording.sections:
            if not section.tables & entry.tables & tables:
                continue
            fingerprint = _fingerprint(entry, section)
            known = store.manifest.units.get(section_key(entry, section))
            if known is None or known.fingerprint != fingerprint:
                yield entry, section, fingerprint


def _batches(tasks: Iterable[ReadTask]) -> Iterator[list[ReadTask]]:
    batch: list[ReadTask] = []
    size = 0
    for task in tasks:
        if batch and (size + task.size > BATCH_BYTES or len(batch) >= BATCH_SECTIONS):
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += task.size
    if batch:
        yield batch


# -- reading ----------------------------------------------------------------------------------------------------------


def _run_batches(
    batches: list[list[ReadTask]], source: ReadSource, target: StoreTarget, executor: Executor
) -> Iterator[ReadResult | FailedBatch]:
    tasks = []
    for batch in batches:
        pickled, paths = dumps(batch, source.root)
        tasks.append(BatchTask(pickled, tuple(task.key for task in batch), source.restricted_to(paths), target))
    for batch_task, result in executor.run(read_batch_task, tasks):
        yield FailedBatch(batch_task.keys, result.reason) if isinstance(result, CrashedTask) else result


def read_batch_task(task: BatchTask) -> ReadResult:
    """Runs on a worker: fetch the files if they are remote, read them, put Parquet files at the target."""
    with scratch_directory() as scratch:
        root = task.source.fetch(scratch / "source")
        data = task.target.staging_directory(scratch / "data")
        batch = loads(task.tasks, root)
        with task_budget(sum(each.size for each in batch)):
            result = read_batch(batch, Tree(root, ()), data)
        task.target.upload(data)
        return result


def read_batch(batch: list[ReadTask], tree: Tree, data: Path) -> ReadResult:
    """Read the sections of one batch into Parquet files.

    DuckDB's threads only help with one large file; with many small ones they cost more than they save.
    """
    units = {}
    with scratch_directory() as scratch, _no_garbage_collection():
        threads = None if len(batch) == 1 else 1
        sink = open_batch(tree, data, scratch, content=_batch_digest(batch), threads=threads)
        for task in batch:
            sink.begin(unit=task.number, rank=task.rank, wanted=task.tables, size=task.size)
            try:
                task.section.read(sink)
                sink.commit()
                _warn_of_cut_offs(task, sink)
            except StoreWriteError:
                raise
            except Exception as error:  # one broken section, whatever is wrong with it, must not hide the others
                _raise_machine_errors(error, scratch)
                if os.environ.get("PACELINE_DEBUG"):
                    raise
                sink.roll_back(error, _failed_file(error, task.section.files))
            warnings = tuple(map(_stored_warning, sink.warnings))
            tables = tuple(sorted(task.tables))
            units[task.key] = StoredSection(task.number, task.fingerprint, task.rank, tables, warnings)
        written = sink.write()
        sink.connection.close()
    numbers = tuple(task.number for task in batch)
    files = {
        file.name: ParquetFile(file.table, file.rows, numbers if file.unit is None else (file.unit,), file.size)
        for file in written
    }
    return ReadResult(units, files, sum(task.size for task in batch))


def _warn_of_cut_offs(task: ReadTask, sink: BatchSink) -> None:
    """Readers accept files that end early, DuckDB even inside a row."""
    for file in task.section.files:
        if what := cut_off(file.path, file.size):
            sink.warn(what, file=file.path, kind="cut")


def _stored_warning(warning: ReadWarning) -> StoredWarning:
    file = None if warning.file is None else printable(warning.file)
    said = printable(warning.said) if isinstance(warning.said, str) else warning.said
    return StoredWarning(warning.rank, file, said, warning.line, warning.lost, warning.kind, warning.core)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Decoding creates millions of objects without any reference cycle; searching them for cycles takes a third of it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _batch_digest(batch: list[ReadTask]) -> str:
    read = [(task.key, task.number, task.fingerprint, sorted(task.tables)) for task in batch]
    return hashlib.sha256(repr((READ_VERSION, read)).encode()).hexdigest()[:8]


def _raise_machine_errors(error: Exception, scratch: Path) -> None:
    """Raise errors that the section did not cause (Ctrl-C, a full disk): stored as its warning they would stay for ever."""
    if is_interrupt(error):
        raise KeyboardInterrupt from error
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or (isinstance(error, duckdb.IOException) and str(scratch) in str(error)):
        raise StoreWriteError(
            f"{tempfile.gettempdir()}: cannot be written ({disk_error_reason(error)})",
            hint="set TMPDIR to a directory with free space",
        ) from error


def _failed_file(error: Exception, files: Sequence[File]) -> Path | None:
    """The file of a section that could not be read, if that is known."""
    named = files[0].path if len(files) == 1 else getattr(error, "filename", None)
    return next((file.path for file in files if str(file.path) == str(named)), None)
