"""A batch of sections read into an in-memory DuckDB and written out as one Parquet file per table.

Many small sections share a file (a thousand ranks do not become ten thousand tiny files); the hidden column `_unit`
says which section a row came from, so that a changed section can be replaced without touching the others. What the
queries of a large section give goes straight to a file of its own: keeping the rows in between would cost half as much
again as reading them.
"""

from __future__ import annotations

import os
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from paceline.errors import FormatError, PacelineError
from paceline.formats.reader import Values
from paceline.run.file_names import file_name
from paceline.storage.tree import Tree
from paceline.tables import TABLES, Table

MEMORY_LIMIT = "512MB"
KEPT_ROWS = 500_000
LARGE_SECTION = 4 << 20
"""Bytes from which on a section's queries get Parquet files of their own."""

Chunk = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Warning:
    """Something missing or odd in a recording: said, not guessed."""

    rank: int | None
    file: str | None
    message: str
    line: int | None = None
    lost: bool = False
    """A whole section could not be read: a copy made of the tables would lack it."""

    def __str__(self) -> str:
        who = f"rank {self.rank}" if self.rank is not None else ""
        where = f"{self.file}:{self.line}" if self.file and self.line else (self.file or "")
        return ": ".join(text for text in (who, where, self.message) if text)


class CannotWrite(PacelineError):
    """The store's disk is full or gone: no section is to blame, and none counts as read."""


@dataclass(frozen=True)
class Written:
    """A Parquet file of a table's rows; unit None: rows of the whole batch."""

    name: str
    table: str
    rows: int
    size: int
    unit: int | None = None


@dataclass
class Batch:
    """The Sink that sections of one batch write to.

    Columns are kept until there are many and inserted together: an INSERT costs milliseconds however few its rows.
    """

    root: Path
    connection: duckdb.DuckDBPyConnection
    directory: Path
    """Where its Parquet files go."""
    content: str
    """Eight digits that stand for what is read, in the files' names."""
    unit: int = 0
    rank: int | None = None
    wanted: frozenset[str] = frozenset(TABLES)
    warnings: list[Warning] = field(default_factory=list)
    _created: set[str] = field(default_factory=set)
    _kept: dict[str, list[Chunk]] = field(default_factory=lambda: defaultdict(list))
    _kept_rows: Counter[str] = field(default_factory=Counter)
    _pending: list[tuple[str, Chunk]] = field(default_factory=list)
    _queried: set[str] = field(default_factory=set)
    """Tables the current section inserted into with queries."""
    _large: bool = False
    """Whether the current section's queries get files of their own."""
    _written: list[Written] = field(default_factory=list)
    _first: int = 0
    """The batch's first unit."""

    # -- the Sink protocol -------------------------------------------------------------------------------------------

    def wants(self, table: str) -> bool:
        return table in self.wanted

    def add(self, table: str, columns: Mapping[str, Values | Any]) -> None:
        if table not in self.wanted or not columns:
            return
        schema = TABLES[table]
        length = _length(schema, columns)
        if length == 0:
            return
        chunk = {name: _array(schema.column(name).type, values, length) for name, values in columns.items()}
        if self.rank is not None:
            chunk.setdefault("rank", np.full(length, self.rank))
        chunk["_unit"] = np.full(length, self.unit)
        self._pending.append((table, chunk))

    def add_query(self, table: str, select: str, parameters: Sequence[object] = ()) -> int:
        if table not in self.wanted:
            return 0
        rank = f", {self.rank} AS rank" if self.rank is not None else ""
        rows = f"SELECT *{rank}, {self.unit} AS _unit FROM ({select})"
        if self._large:
            return self._copy(table, _typed(TABLES[table], rows), parameters, unit=self.unit)
        self._create(TABLES[table])
        self._queried.add(table)
        return self._affected(f"INSERT INTO {_stored(table)} BY NAME {rows}", parameters)

    def warn(self, message: str, *, file: Path | None = None, line: int | None = None) -> None:
        self.warnings.append(Warning(self.rank, self._relative(file), message, line))

    # -- one section -------------------------------------------------------------------------------------------------

    def begin(self, *, unit: int, rank: int | None, wanted: frozenset[str], size: int = 0) -> None:
        self.unit, self.rank, self.wanted, self._large = unit, rank, wanted, size >= LARGE_SECTION
        self._first = self._first or unit
        self.warnings, self._pending, self._queried = [], [], set()

    def commit(self) -> None:
        for table, chunk in self._pending:
            self._kept[table].append(chunk)
            self._kept_rows[table] += len(chunk["_unit"])
        for table in {table for table, _ in self._pending}:
            if self._kept_rows[table] > KEPT_ROWS:
                self._flush(table)
        self._pending = []

    def roll_back(self, error: BaseException, file: Path | None) -> None:
        """Forget the rows of a section that failed; keep the reason."""
        self._pending = []
        for table in self._queried:
            self.connection.execute(f"DELETE FROM {_stored(table)} WHERE _unit = {self.unit}")
        for written in [written for written in self._written if written.unit == self.unit]:
            (self.directory / written.name).unlink()
            self._written.remove(written)
        line = error.line if isinstance(error, FormatError) else None
        where = (error.file if isinstance(error, FormatError) else None) or file
        self.warnings = [Warning(self.rank, self._relative(where), explain(error), line, lost=True)]

    # -- the end of the batch ----------------------------------------------------------------------------------------

    def write(self) -> list[Written]:
        """Write each table that has rows; returns all files of the batch."""
        self.flush()
        for table in sorted(self._created):
            self._copy(table, f"FROM {_stored(table)}")
        return self._written

    def _copy(self, table: str, select: str, parameters: Sequence[object] = (), *, unit: int | None = None) -> int:
        """Written beside and renamed; no rows, no file."""
        name = file_name(table, first=self._first, place=len(self._written), content=self.content)
        # Of its own: a cluster may give a batch to a second worker while the first, thought dead, still writes.
        temporary = self.directory / f".{name}.{uuid.uuid4().hex}.tmp"
        try:
            rows = self._affected(
                f"COPY ({select}) TO '{_literal(temporary)}' (FORMAT parquet, COMPRESSION zstd)", parameters
            )
            if rows:
                os.replace(temporary, self.directory / name)
                self._written.append(Written(name, table, rows, (self.directory / name).stat().st_size, unit))
        except duckdb.IOException as error:
            if temporary.name not in str(error):
                raise  # the source's fault
            raise CannotWrite(
                f"{self.directory}: cannot be written ({why_not_written(error)})",
                hint="what was read is kept; make room there, or give --store another place",
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        return rows

    def _affected(self, statement: str, parameters: Sequence[object]) -> int:
        row = self.connection.execute(statement, list(parameters)).fetchone()
        return int(row[0]) if row else 0

    def flush(self) -> None:
        """Insert all kept columns."""
        for table in list(self._kept):
            self._flush(table)

    def _flush(self, table: str) -> None:
        chunks = self._kept.pop(table, [])
        self._kept_rows[table] = 0
        if not chunks:
            return
        self._create(TABLES[table])
        staged = _joined(chunks)
        self.connection.register("staged", staged)
        names = ", ".join(_quoted(name) for name in staged)
        self.connection.execute(f"INSERT INTO {_stored(table)} BY NAME SELECT {names} FROM staged")
        self.connection.unregister("staged")

    def _create(self, table: Table) -> None:
        if table.name in self._created:
            return
        columns = ", ".join(f"{_quoted(column.name)} {column.type}" for column in table.columns)
        self.connection.execute(f"CREATE TABLE IF NOT EXISTS {_stored(table.name)} ({columns}, _unit BIGINT)")
        self._created.add(table.name)

    def _relative(self, file: Path | None) -> str | None:
        if file is None:
            return None
        return str(file.relative_to(self.root)) if file.is_relative_to(self.root) else str(file)


def new_batch(tree: Tree, directory: Path, scratch: Path, *, content: str, threads: int | None = None) -> Batch:
    settings: dict[str, str | int | bool] = {"preserve_insertion_order": False}
    if threads:
        settings["threads"] = threads
    return Batch(tree.root, connected(spill=scratch, **settings), directory, content)


def connected(*, spill: Path, **settings: str | int | bool) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB within our bounds; `spill` is the directory for what outgrows them."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY_LIMIT,
        "temp_directory": str(spill),
        **settings,
    }
    connection = duckdb.connect(config=config)
    connection.execute("SET enable_progress_bar = false")  # it would write into our output
    return connection


def why_not_written(error: BaseException) -> str:
    """The system's reason, which DuckDB hides in a page of its own."""
    text = " ".join(str(error).split())
    known = re.search(r"No space left on device|Disk quota exceeded|Read-only file system|Permission denied", text)
    return known[0] if known else text[:160]


def explain(error: BaseException) -> str:
    """One line for people, whatever library the error came from."""
    if isinstance(error, PacelineError):
        return str(error)
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, UnicodeDecodeError) or "nvalid unicode" in text or "not utf-8" in text.lower():
        return f"not UTF-8 text, skipped ({text[:160]})"
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or text}"
    return f"cannot be understood, skipped ({text[:200]})"


def _length(table: Table, columns: Mapping[str, Values | Any]) -> int:
    lengths = {len(values) for values in columns.values() if _is_column(values)}
    unknown = set(columns) - set(table.column_names)
    if unknown or len(lengths) > 1:
        raise AssertionError(f"{table.name}: unknown columns {unknown} or unequal lengths {lengths}")
    return lengths.pop() if lengths else 1


def _is_column(values: object) -> bool:
    return isinstance(values, (list, tuple, np.ndarray))


def _array(kind: str, values: Values | Any, length: int) -> NDArray[Any]:
    """A NumPy column DuckDB can scan: masked where None, objects only for text."""
    if not _is_column(values):
        values = [values] * length
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    if kind == "VARCHAR":
        return np.array(values, dtype=object)
    dtype: Any = {"BIGINT": np.int64, "DOUBLE": np.float64, "BOOLEAN": np.bool_}[kind]
    mask = np.fromiter((value is None for value in values), dtype=np.bool_, count=length)
    if not mask.any():
        return np.array(values, dtype=dtype)
    filled = [0 if value is None else value for value in values]
    return np.ma.masked_array(np.array(filled, dtype=dtype), mask=mask)


def _joined(chunks: list[Chunk]) -> Chunk:
    """Chunks of one table end to end; a column that some chunks lack is null there."""
    names = {name: chunk[name].dtype for chunk in chunks for name in chunk}
    return {name: _concatenated([_column(chunk, name, kind) for chunk in chunks]) for name, kind in names.items()}


def _column(chunk: Chunk, name: str, kind: np.dtype[Any]) -> NDArray[Any]:
    if name in chunk:
        return chunk[name]
    length = len(chunk["_unit"])
    if kind.hasobject:
        return np.full(length, None)
    return np.ma.masked_array(np.zeros(length, dtype=kind), mask=True)


def _concatenated(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    masked = any(isinstance(array, np.ma.MaskedArray) for array in arrays)
    if not masked:
        return np.concatenate(arrays)
    mask = np.concatenate([np.ma.getmaskarray(array) for array in arrays])
    return np.ma.masked_array(np.concatenate([np.ma.getdata(array) for array in arrays]), mask=mask)


def _typed(table: Table, select: str) -> str:
    """A SELECT with all columns of the table and their types, whichever of them the given one has, as INSERT does it."""
    missing = ", ".join(f"NULL::{column.type} AS {_quoted(column.name)}" for column in table.columns)
    columns = ", ".join(f"{_quoted(column.name)}::{column.type} AS {_quoted(column.name)}" for column in table.columns)
    return (
        f"SELECT {columns}, _unit::BIGINT AS _unit "
        f"FROM (SELECT {missing}, NULL::BIGINT AS _unit WHERE false UNION ALL BY NAME {select})"
    )


def _stored(table: str) -> str:
    return _quoted("in_" + table)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(path: Path) -> str:
    return str(path).replace("'", "''")
