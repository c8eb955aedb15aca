"""Fill the store: read the sections a table needs, many ranks at a time, each failing alone."""

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

from paceline.errors import is_interrupt
from paceline.formats.reader import Section
from paceline.run.batch import CannotWrite, new_batch, why_not_written
from paceline.run.choice import Chosen
from paceline.run.engines import Engine, Lost
from paceline.run.engines.processes import Processes
from paceline.run.places import Source, Target
from paceline.run.rooted import freeze, thaw
from paceline.run.store import READ_VERSION, DataFile, Store, StoredWarning, Unit
from paceline.storage.tree import File, Tree

BATCH_BYTES = 192 << 20
BATCH_SECTIONS = 512
POOL_BYTES = 384 << 20
SAVE_EVERY = 20.0
"""Seconds of reading that a killed process may lose."""


@dataclass(frozen=True)
class Reading:
    """How far reading is."""

    done: int
    total: int
    """Bytes."""
    ranks: int = 0
    ranks_total: int = 0


Progress = Callable[[Reading], None]


@dataclass(frozen=True)
class Job:
    """One section to be read."""

    key: str
    number: int
    fingerprint: str
    rank: int | None
    tables: frozenset[str]
    section: Section

    @property
    def size(self) -> int:
        """Bytes to be parsed."""
        return round(sum(file.size for file in self.section.files) * self.section.parsed)


@dataclass(frozen=True)
class Outcome:
    units: dict[str, Unit]
    files: dict[str, DataFile]
    size: int


@dataclass(frozen=True)
class Task:
    """A batch on its way to whoever reads it."""

    jobs: bytes
    """Frozen below the source's root."""
    keys: tuple[str, ...]
    source: Source
    target: Target


def fill(
    store: Store,
    source: Source,
    chosen: list[Chosen],
    tables: frozenset[str],
    *,
    engine: Engine,
    progress: Progress | None = None,
) -> None:
    """Read what is needed for these tables and not in the store yet; forget what is no longer in the source."""
    if not _missing(store, chosen) and not any(True for _ in _unread(store, chosen, tables)):
        return  # nothing to write: a store that only others may write to serves as well
    with store.writing():
        gone = _forget_missing(store, chosen)
        jobs = {job.key: job for job in _jobs(store, chosen, tables)}
        if not jobs:
            if gone:
                store.save()
            return
        # Chosen once: what took a process down must not be read by this one because little is left.
        if not engine.far and sum(job.size for job in jobs.values()) <= POOL_BYTES:
            engine = Processes(1)  # starting processes, half a CPU second each, would cost more than it saves
        with store.receiving(far=engine.far) as target:
            _fill(store, jobs, _Reading(jobs, progress), lambda tasks: _run(tasks, source, target, engine))


def _fill(
    store: Store, jobs: dict[str, Job], reading: _Reading, run: Callable[[list[list[Job]]], Iterator[Outcome | Fallen]]
) -> None:
    """A batch that takes its reader down is read again section by section; a section that does it alone is passed over."""
    saved = time.monotonic()
    batches = list(_batches(jobs.values()))
    try:
        while batches:
            fallen: list[Fallen] = []
            for outcome in run(batches):
                if isinstance(outcome, Fallen) and len(outcome.keys) > 1:
                    fallen.append(outcome)
                    continue
                result = _passed_over(jobs[outcome.keys[0]], outcome.reason) if isinstance(outcome, Fallen) else outcome
                store.manifest.units.update(result.units)
                store.manifest.files.update(result.files)
                reading.advance(result)
                if time.monotonic() - saved > SAVE_EVERY:
                    store.save()
                    saved = time.monotonic()
            batches = [[jobs[key]] for each in fallen for key in each.keys]
    finally:
        store.save()


@dataclass(frozen=True)
class Fallen:
    """A batch whose readers died, all of them."""

    keys: tuple[str, ...]
    reason: str


def _passed_over(job: Job, reason: str) -> Outcome:
    files = job.section.files
    warning = StoredWarning(job.rank, files[0].relative if files else None, f"skipped: {reason}", lost=True)
    return Outcome(
        {job.key: Unit(job.number, job.fingerprint, job.rank, tuple(sorted(job.tables)), (warning,))}, {}, job.size
    )


class _Reading:
    """Counts bytes, and ranks all of whose sections are read."""

    def __init__(self, jobs: dict[str, Job], progress: Progress | None) -> None:
        self._jobs, self._progress = jobs, progress
        self._open = Counter(job.rank for job in jobs.values() if job.rank is not None)
        self._ranks = len(self._open)
        self._done, self._total = 0, sum(job.size for job in jobs.values())

    def advance(self, outcome: Outcome) -> None:
        self._done += outcome.size
        for key in outcome.units:
            rank = self._jobs[key].rank
            if rank is not None:
                self._open[rank] -= 1
        self._open = +self._open
        if self._progress:
            self._progress(Reading(self._done, self._total, self._ranks - len(self._open), self._ranks))


def _key(entry: Chosen, section: Section) -> str:
    return f"{entry.part.format}:{entry.part.root}:{entry.part.rank}:{section.name}"


def _fingerprint(entry: Chosen, section: Section) -> str:
    digest = hashlib.sha256(repr(sorted(entry.tables & section.tables)).encode())
    for file in section.files:
        digest.update(f"{file.relative}\0{file.size}\0{file.mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


def _missing(store: Store, chosen: list[Chosen]) -> set[str]:
    return set(store.manifest.units) - {_key(entry, section) for entry in chosen for section in entry.part.sections}


def _forget_missing(store: Store, chosen: list[Chosen]) -> bool:
    missing = _missing(store, chosen)
    for key in missing:
        del store.manifest.units[key]
    return bool(missing)


def _jobs(store: Store, chosen: list[Chosen], tables: frozenset[str]) -> Iterator[Job]:
    for entry, section, fingerprint in _unread(store, chosen, tables):
        number = store.manifest.next_number
        store.manifest.next_number += 1
        yield Job(_key(entry, section), number, fingerprint, entry.part.rank, section.tables & entry.tables, section)


def _unread(store: Store, chosen: list[Chosen], tables: frozenset[str]) -> Iterator[tuple[Chosen, Section, str]]:
    """Sections these tables need, each with its fingerprint, that are not in the store as they are now."""
    for entry in chosen:
        for section in entry.part.sections:
            if not section.tables & entry.tables & tables:
                continue
            fingerprint = _fingerprint(entry, section)
            known = store.manifest.units.get(_key(entry, section))
            if known is None or known.fingerprint != fingerprint:
                yield entry, section, fingerprint


def _batches(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    batch: list[Job] = []
    size = 0
    for job in jobs:
        if batch and (size + job.size > BATCH_BYTES or len(batch) >= BATCH_SECTIONS):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += job.size
    if batch:
        yield batch


def _run(batches: list[list[Job]], source: Source, target: Target, engine: Engine) -> Iterator[Outcome | Fallen]:
    tasks = []
    for batch in batches:
        jobs, tails = freeze(batch, source.root)
        tasks.append(Task(jobs, tuple(job.key for job in batch), source.narrowed(tails), target))
    for task, outcome in engine.run(read_task, tasks):
        yield Fallen(task.keys, outcome.reason) if isinstance(outcome, Lost) else outcome


def read_task(task: Task) -> Outcome:
    """Wherever it runs: fetch if need be, read, leave Parquet files at the target."""
    with tempfile.TemporaryDirectory(prefix="paceline-") as scratch:
        root = task.source.fetched(Path(scratch) / "source")
        data = task.target.staging(Path(scratch) / "data")
        outcome = read_batch(thaw(task.jobs, root), Tree(root, ()), data)
        task.target.deliver(data)
        return outcome


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Decoding makes millions of objects without a single cycle; looking for cycles among them takes a third of it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _content(batch: list[Job]) -> str:
    read = [(job.key, job.number, job.fingerprint, sorted(job.tables)) for job in batch]
    return hashlib.sha256(repr((READ_VERSION, read)).encode()).hexdigest()[:8]


def _pass_on(error: Exception, scratch: Path) -> None:
    """Raise what is no fault of the section: Ctrl-C, and a full disk. Stored as a warning it would stay for ever."""
    if is_interrupt(error):
        raise KeyboardInterrupt from error
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or (isinstance(error, duckdb.IOException) and str(scratch) in str(error)):
        raise CannotWrite(
            f"{tempfile.gettempdir()}: cannot be written ({why_not_written(error)})",
            hint="TMPDIR names a directory with room",
        ) from error


def _culprit(error: Exception, files: Sequence[File]) -> Path | None:
    """Which file of a section failed, if anything tells."""
    named = files[0].path if len(files) == 1 else getattr(error, "filename", None)
    return next((file.path for file in files if str(file.path) == str(named)), None)


def read_batch(batch: list[Job], tree: Tree, data: Path) -> Outcome:
    """Read the sections of one batch into Parquet files of their own.

    DuckDB's threads only help with one large file; with many small ones they cost more than they save.
    """
    units = {}
    with tempfile.TemporaryDirectory(prefix="paceline-") as scratch, _no_garbage_collection():
        sink = new_batch(tree, data, Path(scratch), content=_content(batch), threads=None if len(batch) == 1 else 1)
        for job in batch:
            sink.begin(unit=job.number, rank=job.rank, wanted=job.tables, size=job.size)
            try:
                job.section.read(sink)
                sink.commit()
            except CannotWrite:
                raise
            except Exception as error:  # one bad section, whatever is wrong with it, never hides the others
                _pass_on(error, Path(scratch))
                if os.environ.get("PACELINE_DEBUG"):
                    raise
                sink.roll_back(error, _culprit(error, job.section.files))
            warnings = tuple(StoredWarning(w.rank, w.file, w.message, w.line, w.lost) for w in sink.warnings)
            units[job.key] = Unit(job.number, job.fingerprint, job.rank, tuple(sorted(job.tables)), warnings)
        written = sink.write()
        sink.connection.close()
    numbers = tuple(job.number for job in batch)
    data_files = {
        file.name: DataFile(file.table, file.rows, numbers if file.unit is None else (file.unit,), file.size)
        for file in written
    }
    return Outcome(units, data_files, sum(job.size for job in batch))
