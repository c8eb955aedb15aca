"""Fill the store: read the sections a table needs, many ranks at a time, each failing alone."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import PacelineError
from paceline.formats.reader import Section
from paceline.run.batch import new_batch
from paceline.run.choice import Chosen
from paceline.run.store import DataFile, Store, StoredWarning, Unit
from paceline.storage.tree import Tree

BATCH_BYTES = 192 << 20
BATCH_SECTIONS = 512
POOL_BYTES = 384 << 20

Progress = Callable[[int, int], None]
"""Called with bytes read and bytes to read."""


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


def fill(
    store: Store,
    tree: Tree,
    chosen: list[Chosen],
    tables: frozenset[str],
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> None:
    """Read what is needed for these tables and not in the store yet; forget what is no longer in the source."""
    with store.writing():
        gone = _forget_missing(store, chosen)
        jobs = list(_jobs(store, chosen, tables))
        if not jobs:
            if gone:
                store.save()
            return
        total, done = sum(job.size for job in jobs), 0
        for outcome in _run(list(_batches(jobs)), tree, store.data, workers=_useful(workers, total)):
            store.manifest.units.update(outcome.units)
            store.manifest.files.update(outcome.files)
            done += outcome.size
            if progress:
                progress(done, total)
        store.save()


def _key(entry: Chosen, section: Section) -> str:
    return f"{entry.part.format}:{entry.part.root}:{entry.part.rank}:{section.name}"


def _fingerprint(entry: Chosen, section: Section) -> str:
    digest = hashlib.sha256(repr(sorted(entry.tables & section.tables)).encode())
    for file in section.files:
        digest.update(f"{file.relative}\0{file.size}\0{file.mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


def _forget_missing(store: Store, chosen: list[Chosen]) -> bool:
    present = {_key(entry, section) for entry in chosen for section in entry.part.sections}
    missing = set(store.manifest.units) - present
    for key in missing:
        del store.manifest.units[key]
    return bool(missing)


def _jobs(store: Store, chosen: list[Chosen], tables: frozenset[str]) -> Iterator[Job]:
    for entry in chosen:
        for section in entry.part.sections:
            supplied = section.tables & entry.tables
            if not supplied & tables:
                continue
            key, fingerprint = _key(entry, section), _fingerprint(entry, section)
            known = store.manifest.units.get(key)
            if known is None or known.fingerprint != fingerprint:
                number = store.manifest.next_number
                store.manifest.next_number += 1
                yield Job(key, number, fingerprint, entry.part.rank, supplied, section)


def _batches(jobs: list[Job]) -> Iterator[list[Job]]:
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


def _run(batches: list[list[Job]], tree: Tree, data: Path, *, workers: int) -> Iterable[Outcome]:
    root = Tree(tree.root, ())
    if workers == 1 or len(batches) == 1:
        yield from (read_batch(batch, root, data) for batch in batches)
        return
    # Spawned, because forking a process that has run DuckDB threads can deadlock.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = [pool.submit(read_batch, batch, root, data) for batch in batches]
        try:
            for future in futures:
                yield future.result()
        except BrokenProcessPool as error:
            raise PacelineError(
                "a reading process died (killed, or out of memory)", hint="try again with --workers 1"
            ) from error
        finally:
            for future in futures:
                future.cancel()


def _useful(workers: int, total: int) -> int:
    """Below POOL_BYTES starting processes, half a CPU second each, costs more than it saves."""
    return workers if total > POOL_BYTES else 1


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


def read_batch(batch: list[Job], tree: Tree, data: Path) -> Outcome:
    """Read the sections of one batch into Parquet files of their own.

    DuckDB's threads only help with one large file; with many small ones they cost more than they save.
    """
    units = {}
    with tempfile.TemporaryDirectory(prefix="paceline-") as scratch, _no_garbage_collection():
        sink = new_batch(tree, data, Path(scratch), threads=None if len(batch) == 1 else 1)
        for job in batch:
            sink.begin(unit=job.number, rank=job.rank, wanted=job.tables, size=job.size)
            try:
                job.section.read(sink)
                sink.commit()
            except Exception as error:  # one bad section, whatever is wrong with it, never hides the others
                if os.environ.get("PACELINE_DEBUG"):
                    raise
                files = job.section.files
                sink.roll_back(error, files[0].path if len(files) == 1 else None)
            warnings = tuple(StoredWarning(w.rank, w.file, w.message, w.line) for w in sink.warnings)
            units[job.key] = Unit(job.number, job.fingerprint, job.rank, tuple(sorted(job.tables)), warnings)
        written = sink.write()
        sink.connection.close()
    numbers = tuple(job.number for job in batch)
    data_files = {
        file.name: DataFile(file.table, file.rows, numbers if file.unit is None else (file.unit,)) for file in written
    }
    return Outcome(units, data_files, sum(job.size for job in batch))
