"""Run: the recordings of a cluster as one set of tables, read on demand and kept in a Parquet store."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path

import duckdb

from paceline.core.errors import UsageError
from paceline.core.schema import TABLES
from paceline.core.text_encoding import printable
from paceline.formats.base import CUT_OFF, RankRecording
from paceline.formats.registry import find_recordings
from paceline.run.checks import check_run
from paceline.run.evidence.absent_ranks import absent_ranks
from paceline.run.evidence.clocks import reconcile_clocks
from paceline.run.evidence.exchanged_files import (
    exchanged_ends,
    exchanged_links,
    exchanged_splits,
    exchanged_times,
    foreign_kernels,
    foreign_samples,
    foreign_timelines,
)
from paceline.run.evidence.files import FileGaps
from paceline.run.evidence.gap import EvidenceGap, gap_of
from paceline.run.evidence.reconcile import (
    reconcile_identities,
    reconcile_kernels,
    reconcile_members,
    reconcile_parts,
    unrecorded_collectives,
)
from paceline.run.executors.executor import Executor
from paceline.run.executors.processes import ProcessExecutor
from paceline.run.ingest import OnReadProgress, fill_store, section_key
from paceline.run.io_endpoints import ReadSource
from paceline.run.read_warning import ReadWarning
from paceline.run.source_recordings import has_profile, no_profile_error, open_tree
from paceline.run.source_selection import select_recordings
from paceline.run.sql_sandbox import check_read_only, query_error, restrict_to_directories
from paceline.run.tables import views
from paceline.run.tables.batch import open_memory_database
from paceline.run.tables.derivation import add_rows, apply_kinds, create_members, derive
from paceline.run.tables.derived_cache import DerivedCache
from paceline.run.tables.store import default_store_directory, open_run_store
from paceline.storage.file_tree import Tree

TABLE_NAMES = (*TABLES, "links")
_ALWAYS_LOADED = frozenset({"ranks", "groups", "transfers", "collectives"})
_COLLECTIVES_IN_MEMORY = 1_000_000
"""Up to this many rows of collectives are held in memory: most analyses read them."""
_RAW_IN_MEMORY = 250_000
"""Up to this many rows a stored table is held in memory if clocks, groups and checks read it: a dozen queries decode it once."""


class Run:
    """Tables of a source; `run.table("steps")` and `run.sql(…)` return DuckDB relations (.pl(), .df(), .arrow())."""

    def __init__(
        self,
        source: Path,
        *,
        store: str | Path | None = None,
        executor: Executor | None = None,
        progress: OnReadProgress | None = None,
        name: str | None = None,
        scanned: tuple[Tree, ReadSource] | None = None,
    ) -> None:
        self.source = name or str(source)
        """As users name it: the URL of a remote source, not the path of its copy."""
        self._executor, self._progress = executor or ProcessExecutor(1), progress
        self._tree, recordings = (scanned[0], list(find_recordings(scanned[0]))) if scanned else open_tree(source)
        self._read_source = scanned[1] if scanned else ReadSource(self._tree.root)
        if not has_profile(recordings):
            raise no_profile_error(self.source, self._tree)
        self._selected, self._warnings = select_recordings(recordings)
        self._file_gaps = FileGaps(
            self._tree, tuple(entry.recording for entry in self._selected), local=not self._read_source.url
        )
        self._warnings += [ReadWarning(None, None, text) for text in self._tree.unreadable]
        self._store = open_run_store(store or default_store_directory(source))
        self._loaded: frozenset[str] = frozenset()
        self._all_warnings: list[ReadWarning] | None = None
        self._table_gaps: list[EvidenceGap] = []
        self._rank_gaps: list[EvidenceGap] = []
        self._scans: dict[str, str | None] = {}
        self._kinds: dict[str, str] = {}
        self.derived: dict[Hashable, object] = {}
        """Results that metrics derived from this run, kept while it is open."""
        # Joins over many ranks may outgrow the memory: they spill beside the store, not into the working directory.
        self.connection = open_memory_database(spill=self._store.directory / "spill")
        self.connection.execute("CREATE SCHEMA raw")
        self._fill_recordings([entry.recording for entry in self._selected])

    # -- public ------------------------------------------------------------------------------------------------------

    def table(self, name: str) -> duckdb.DuckDBPyRelation:
        """One table as a relation; what it needs is read first."""
        self.load([name])
        return self.connection.view(name)

    def sql(self, query: str, params: Mapping[str, object] | None = None) -> duckdb.DuckDBPyRelation:
        """Any SELECT over the tables; only the tables it names are read. `$name` in it is the parameter of that name."""
        check_read_only(self.connection, query)
        self.load(self._named_in(query))
        try:
            return self.connection.sql(query, params=params)
        except duckdb.Error as error:
            raise query_error(error) from error

    def sandboxed_sql(self, query: str, *, writing_below: Path | None = None) -> duckdb.DuckDBPyRelation:
        """As `sql`, for a query from outside: it can open no files but the store's, and later no other table can be read.

        Its rows may be written to a file in the directory `writing_below`.
        """
        check_read_only(self.connection, query)
        self.load(["ranks", *self._named_in(query)])
        restrict_to_directories(self.connection, [self._store.data, *([writing_below] if writing_below else [])])
        return self.sql(query)

    def load(self, names: Iterable[str]) -> None:
        """Read these tables now, in one pass."""
        needed = frozenset().union(_ALWAYS_LOADED, *(views.DEPENDS[_known(name)] for name in names))
        if needed <= self._loaded:
            return
        self._loaded |= needed
        fill_store(
            self._store,
            self._read_source,
            self._selected,
            self._loaded,
            executor=self._executor,
            progress=self._progress,
        )
        self._create_views()

    def rows(self, name: str) -> int:
        """Number of rows of a table."""
        found = self.table(name).aggregate("count(*)").fetchall()
        return int(found[0][0])

    @property
    def warnings(self) -> list[ReadWarning]:
        """Everything missing or odd in what was read so far."""
        self.load(["ranks"])
        if self._all_warnings is None:
            found = [gap.to_warning() for gap in (*self._file_gaps.found, *self._table_gaps)]
            in_run = check_run(self.connection, self._loaded)
            self._all_warnings = _said_once(self.file_warnings + found + in_run)
        return list(self._all_warnings)

    @property
    def gaps(self) -> list[EvidenceGap]:
        """What should have been recorded and is not there, contradicts itself or was guessed, in what was read so far."""
        self.load(["ranks"])
        return [*self._file_gaps.found, *self._table_gaps, *map(gap_of, self.file_warnings)]

    @property
    def file_gaps(self) -> tuple[EvidenceGap, ...]:
        """What the files lack or contradict, without what their tables show."""
        return self._file_gaps.found

    @property
    def file_warnings(self) -> list[ReadWarning]:
        """Warnings of the readers, without those about the run as a whole. Sections that share a file share its warnings."""
        stored = [
            warning.to_warning()
            for key in sorted(self._store.manifest.units)
            for warning in self._store.manifest.units[key].warnings
        ]
        return list(dict.fromkeys([*self._warnings, *stored]))

    @property
    def formats(self) -> list[str]:
        return sorted({entry.recording.format for entry in self._selected})

    @property
    def files_read(self) -> frozenset[str]:
        """What was read so far, relative to the source."""
        units = self._store.manifest.units
        return frozenset(
            file.relative
            for entry in self._selected
            for section in entry.recording.sections
            if section_key(entry, section) in units
            for file in section.files
        )

    @property
    def size(self) -> int:
        """Bytes of all files that the run reads."""
        files = {file for entry in self._selected for section in entry.recording.sections for file in section.files}
        return sum(file.size for file in files)

    def close(self) -> None:
        self.derived.clear()
        self.connection.close()
        self._executor.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- views and tables --------------------------------------------------------------------------------------------

    def _named_in(self, query: str) -> list[str]:
        """Tables that a query may use: every table name that occurs in it as a word."""
        words = set(re.findall(r"\w+", query.lower()))
        return [name for name in TABLE_NAMES if name in words]

    def _create_views(self) -> None:
        """Only of loaded tables: a view takes a millisecond or two, and a table that was not loaded must not look empty."""
        scans = {name: self._store.scan(name) for name in TABLES if name in self._loaded}
        changed = {name for name in scans if name not in self._scans or scans[name] != self._scans[name]}
        for name in sorted(changed):
            self._create_raw(name, scans[name])
        self._scans, self._all_warnings = scans, None
        self._table_gaps = self._reconcile()
        self._fill_notes()
        if changed & _ALWAYS_LOADED:
            self._derive_clock_and_groups()
        for name in (*scans, "links"):
            if name in changed or name in ("ranks", "links") or changed & _ALWAYS_LOADED:
                self._create_public(name)
        self._reconcile_ranks(again=bool(changed & _ALWAYS_LOADED))

    def _reconcile_ranks(self, *, again: bool) -> None:
        """After groups and clocks are known; what is found then belongs to the notes of ranks too."""
        if again:
            clocks = reconcile_clocks(self.connection, self._store.rows("collectives"))
            self._rank_gaps = [*absent_ranks(self.connection), *clocks, *exchanged_ends(self.connection)]
        self._table_gaps = [*self._table_gaps, *self._rank_gaps]
        if any(gap.ranks for gap in self._rank_gaps):
            self._fill_notes()
            self._create_public("ranks")

    def _create_raw(self, name: str, stored: str | None) -> None:
        columns = ", ".join(f'NULL::{column.type} AS "{column.name}"' for column in TABLES[name].columns)
        in_memory = name in (*_ALWAYS_LOADED, "steps") and self._store.rows(name) <= _RAW_IN_MEMORY
        self._create(f"raw.{name}", stored or f"SELECT {columns} WHERE false", in_memory=in_memory)

    def _create_public(self, name: str) -> None:
        """Tables for what is small and often read (planning the view `ranks` takes longer than most queries), else views."""
        in_memory = name == "ranks" or (name == "collectives" and self._store.rows(name) <= _COLLECTIVES_IN_MEMORY)
        self._create(name, views.public(name), in_memory=in_memory)

    def _create(self, name: str, select: str, *, in_memory: bool) -> None:
        self.connection.execute(f"DROP {self._kinds.pop(name, 'VIEW')} IF EXISTS {name}")
        self._kinds[name] = "TABLE" if in_memory else "VIEW"
        self.connection.execute(f"CREATE {self._kinds[name]} {name} AS {select}")

    def _fill_recordings(self, recordings: list[RankRecording]) -> None:
        self.connection.execute("CREATE TABLE recordings (rank BIGINT, format VARCHAR, path VARCHAR)")
        rows = [(each.rank, each.format, printable(each.root or ".")) for each in recordings if each.rank is not None]
        add_rows(self.connection, "recordings", rows)

    def _reconcile(self) -> list[EvidenceGap]:
        gaps = [*reconcile_members(self.connection), *reconcile_identities(self.connection)]
        gaps += [*reconcile_parts(self.connection), *exchanged_links(self.connection)]
        if "steps" in self._loaded:
            gaps += [*unrecorded_collectives(self.connection), *exchanged_splits(self.connection)]
        if {"kernels", "steps"} <= self._loaded:
            gaps += [*reconcile_kernels(self.connection), *exchanged_times(self.connection)]
            gaps += foreign_kernels(self.connection)
        if {"kernels", "events"} <= self._loaded:
            gaps += foreign_timelines(self.connection)
        if "memory" in self._loaded:
            gaps += foreign_samples(self.connection)
        return gaps

    def _fill_notes(self) -> None:
        notes: dict[int, list[str]] = defaultdict(list)
        for warning in self.file_warnings:
            if warning.rank is not None:
                notes[warning.rank].append(
                    printable(f"{warning.file}: {warning.message}" if warning.file else warning.message)
                )
        for gap in (*self._file_gaps.found, *self._table_gaps, *self._unread_cut_offs()):
            for rank in gap.ranks:
                notes[rank].append(printable(f"{gap.file}: {gap.message}" if gap.file else gap.message))
        self.connection.execute("CREATE OR REPLACE TABLE notes (rank BIGINT, note VARCHAR)")
        add_rows(self.connection, "notes", [(rank, "; ".join(texts)) for rank, texts in notes.items()])

    def _unread_cut_offs(self) -> list[EvidenceGap]:
        """A rank is complete only if its files that nothing asked for yet are."""
        units = self._store.manifest.units
        return self._file_gaps.cut_off_in(
            (entry.recording.rank, section)
            for entry in self._selected
            for section in entry.recording.sections
            if section_key(entry, section) not in units
        )

    def _derive_clock_and_groups(self) -> None:
        """Minutes of work for thousands of ranks, so the results are cached in the store."""
        cache = DerivedCache(self._store.directory, [self._scans[name] for name in sorted(_ALWAYS_LOADED)])
        if cache.load(self.connection):
            create_members(self.connection)
        else:
            derive(self.connection, one_clock=self._is_on_one_clock())
            cache.save(self.connection)
        apply_kinds(self.connection)

    def _is_on_one_clock(self) -> bool:
        return [entry.recording.one_clock for entry in self._selected if "collectives" in entry.recording.tables] == [
            True
        ]


def _known(name: str) -> str:
    if name not in TABLE_NAMES:
        raise UsageError(f"unknown table {name!r}", hint=f"tables: {', '.join(TABLE_NAMES)}")
    return name


def _said_once(warnings: list[ReadWarning]) -> list[ReadWarning]:
    """Each section that reads a file, and the check of its end, say that it was cut off."""
    cut: set[tuple[int | None, str | None]] = set()
    kept = []
    for warning in warnings:
        if warning.kind == "cut" and warning.said == CUT_OFF:
            if (warning.rank, warning.file) in cut:
                continue
            cut.add((warning.rank, warning.file))
        kept.append(warning)
    return kept
