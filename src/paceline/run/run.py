"""A Run: any cluster profile as one set of tables, read on demand and kept in a Parquet store."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from paceline.errors import UsageError
from paceline.formats.detect import find_parts
from paceline.formats.reader import Part
from paceline.run import views
from paceline.run.batch import Warning, connected
from paceline.run.checks import check_run
from paceline.run.choice import choose
from paceline.run.clock import clock_offsets
from paceline.run.engines import Engine
from paceline.run.engines.processes import Processes
from paceline.run.groups import infer_groups
from paceline.run.index import Progress, fill
from paceline.run.places import Source
from paceline.run.read_only import check_reads_only, failing, seal
from paceline.run.store import open_store_at, store_directory
from paceline.run.worked_out import WorkedOut
from paceline.storage.tree import Tree, walk
from paceline.tables import TABLES

TABLE_NAMES = (*TABLES, "links")
_SMALL = frozenset({"ranks", "groups", "transfers", "collectives"})
_KEPT_IN_MEMORY = 1_000_000
"""Collectives up to this many are held in memory: most analyses read them."""


class Run:
    """Tables of a source; `run.table("steps")` and `run.sql(…)` give DuckDB relations (.pl(), .df(), .arrow())."""

    def __init__(
        self,
        source: Path,
        *,
        store: str | Path | None = None,
        engine: Engine | None = None,
        progress: Progress | None = None,
        called: str | None = None,
        seen: tuple[Tree, Source] | None = None,
    ) -> None:
        self.source = called or str(source)
        """As users know it: a remote source goes by its URL, not by where its copy lies."""
        self._engine, self._progress = engine or Processes(1), progress
        self._tree = seen[0] if seen else walk(source)
        self._place = seen[1] if seen else Source(self._tree.root)
        parts = list(find_parts(self._tree))
        if not any(part.tables - {"ranks", "groups"} for part in parts):
            raise UsageError(
                f"{self.source}: no profile found in {len(self._tree.files):,} files",
                hint="formats that are read: see docs/formats.md; give the directory above the ranks' directories",
            )
        self._chosen, self._warnings = choose(parts)
        self._warnings += [Warning(None, None, text) for text in self._tree.unreadable]
        self._store = open_store_at(store or store_directory(source))
        self._loaded: frozenset[str] = frozenset()
        self._noticed: list[Warning] | None = None
        self._scans: dict[str, str | None] = {}
        self._kinds: dict[str, str] = {}
        # Joins of many ranks may outgrow the memory; beside the store there is room, in the user's directory there is not.
        self.connection = connected(spill=self._store.directory / "spill")
        self.connection.execute("CREATE SCHEMA raw")
        self._fill_parts([entry.part for entry in self._chosen])

    # -- what users call ---------------------------------------------------------------------------------------------

    def table(self, name: str) -> duckdb.DuckDBPyRelation:
        """One table as a relation; reads what it needs first."""
        self.load([name])
        return self.connection.view(name)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Any SELECT over the tables; only those it names are read."""
        check_reads_only(query)
        self.load(self._named_in(query))
        try:
            return self.connection.sql(query)
        except duckdb.Error as error:
            raise failing(error) from error

    def ask(self, query: str, *, writing_below: Path | None = None) -> duckdb.DuckDBPyRelation:
        """As `sql`, for a query of whoever: it sees no files but the store's, and afterwards no other table can be read.

        Its rows may be written to a file in the directory `writing_below`.
        """
        check_reads_only(query)
        self.load(["ranks", *self._named_in(query)])
        seal(self.connection, [self._store.data, *([writing_below] if writing_below else [])])
        return self.sql(query)

    def load(self, names: Iterable[str]) -> None:
        """Read these tables now, together."""
        needed = frozenset().union(_SMALL, *(views.DEPENDS[_known(name)] for name in names))
        if needed <= self._loaded:
            return
        self._loaded |= needed
        fill(self._store, self._place, self._chosen, self._loaded, engine=self._engine, progress=self._progress)
        self._create_views()

    def rows(self, name: str) -> int:
        """How many rows a table has."""
        found = self.table(name).aggregate("count(*)").fetchall()
        return int(found[0][0])

    @property
    def warnings(self) -> list[Warning]:
        """Everything missing or odd that was noticed so far."""
        self.load(["ranks"])
        if self._noticed is None:
            self._noticed = self._all_warnings() + check_run(self.connection, steps="steps" in self._loaded)
        return list(self._noticed)

    @property
    def noticed_in_files(self) -> list[Warning]:
        """What readers noticed so far; without what is missing or odd about the run as a whole."""
        return self._all_warnings()

    @property
    def formats(self) -> list[str]:
        return sorted({entry.part.format for entry in self._chosen})

    @property
    def size(self) -> int:
        """Bytes of all files the run's sections read."""
        files = {file for entry in self._chosen for section in entry.part.sections for file in section.files}
        return sum(file.size for file in files)

    def close(self) -> None:
        self.connection.close()
        self._engine.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how it is made ----------------------------------------------------------------------------------------------

    def _named_in(self, query: str) -> list[str]:
        """Tables a query may touch: every known name that occurs in it as a word."""
        words = set(re.findall(r"\w+", query.lower()))
        return [name for name in TABLE_NAMES if name in words]

    def _create_views(self) -> None:
        """Of what was asked for: a view takes a millisecond or two, and a table nobody loaded is better missing than empty."""
        scans = {name: self._store.scan(name) for name in TABLES if name in self._loaded}
        changed = {name for name in scans if name not in self._scans or scans[name] != self._scans[name]}
        for name in sorted(changed):
            self._create_raw(name, scans[name])
        self._scans, self._noticed = scans, None
        self._fill_notes()
        if changed & _SMALL:
            self._work_out()
            self.connection.execute(f"CREATE OR REPLACE TABLE members AS {views.MEMBERS}")
        for name in (*scans, "links"):
            if name in changed or name in ("ranks", "links") or changed & _SMALL:
                self._create_public(name)

    def _create_raw(self, name: str, stored: str | None) -> None:
        columns = ", ".join(f'NULL::{column.type} AS "{column.name}"' for column in TABLES[name].columns)
        self.connection.execute(f"CREATE OR REPLACE VIEW raw.{name} AS {stored or f'SELECT {columns} WHERE false'}")

    def _create_public(self, name: str) -> None:
        """Views, but for what is small and asked for all the time: planning `ranks` alone takes longer than most questions."""
        kept = name == "ranks" or (name == "collectives" and self._store.rows(name) <= _KEPT_IN_MEMORY)
        self.connection.execute(f"DROP {self._kinds.pop(name, 'VIEW')} IF EXISTS {name}")
        self._kinds[name] = "TABLE" if kept else "VIEW"
        self.connection.execute(f"CREATE {self._kinds[name]} {name} AS {views.public(name)}")

    def _fill_parts(self, parts: list[Part]) -> None:
        self.connection.execute("CREATE TABLE parts (rank BIGINT, format VARCHAR, path VARCHAR)")
        rows = [(part.rank, part.format, part.root or ".") for part in parts if part.rank is not None]
        self._insert("parts", rows)

    def _fill_notes(self) -> None:
        notes: dict[int, list[str]] = defaultdict(list)
        for warning in self._all_warnings():
            if warning.rank is not None:
                notes[warning.rank].append(f"{warning.file}: {warning.message}" if warning.file else warning.message)
        self.connection.execute("CREATE OR REPLACE TABLE notes (rank BIGINT, note VARCHAR)")
        self._insert("notes", [(rank, "; ".join(texts)) for rank, texts in notes.items()])

    def _work_out(self) -> None:
        """Clocks and groups: minutes of work at thousands of ranks, so they are kept with the store."""
        kept = WorkedOut(self._store.directory, self._scans["collectives"])
        if not kept.recall(self.connection):
            self._fill_clock()
            self._fill_inferred()
            kept.keep(self.connection)

    def _fill_clock(self) -> None:
        self.connection.execute("CREATE OR REPLACE TABLE clock (rank BIGINT, clock_offset BIGINT)")
        if [entry.part.one_clock for entry in self._chosen if "collectives" in entry.part.tables] == [True]:
            # Worked out again from what is aligned already, the scatter of its ends would move it once more.
            self.connection.execute(
                "INSERT INTO clock SELECT DISTINCT rank, 0 FROM raw.ranks WHERE clock_offset IS NOT NULL"
            )
            return
        self.connection.execute("SET search_path = 'raw'")
        try:
            offsets = clock_offsets(self.connection)
        finally:
            self.connection.execute("SET search_path = 'main'")
        self._insert("clock", list(offsets.items()))

    def _fill_inferred(self) -> None:
        self.connection.execute("CREATE OR REPLACE TABLE inferred (name VARCHAR, rank BIGINT, inferred_group VARCHAR)")
        self._insert("inferred", infer_groups(self.connection))

    def _insert(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """As columns: DuckDB's executemany takes a millisecond a row."""
        if rows:
            columns = {f"c{i}": np.array(values) for i, values in enumerate(zip(*rows, strict=True))}
            self.connection.register("staged", columns)
            self.connection.execute(f"INSERT INTO {table} SELECT * FROM staged")
            self.connection.unregister("staged")

    def _all_warnings(self) -> list[Warning]:
        stored = [
            warning.thaw()
            for key in sorted(self._store.manifest.units)
            for warning in self._store.manifest.units[key].warnings
        ]
        return self._warnings + stored


def _known(name: str) -> str:
    if name not in TABLE_NAMES:
        raise UsageError(f"no table {name!r}", hint=f"there are: {', '.join(TABLE_NAMES)}")
    return name
