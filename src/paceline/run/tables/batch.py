"""BatchSink: the rows of a batch of sections, collected in an in-memory DuckDB and written as one Parquet file per table.

Many small sections share a file, so that a thousand ranks do not become ten thousand tiny files. The hidden column
`_unit` tells which section a row came from, so that a changed section can be replaced without touching the others.
Query results of a large section go directly to a file: keeping the rows in memory first would add half of the time it
takes to read them.
"""

from __future__ import annotations

import os
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from paceline.core.errors import FormatError, PacelineError
from paceline.core.message import Sentence, message
from paceline.core.schema import TABLES, TableSchema
from paceline.formats.base import Values
from paceline.run.evidence.gap import is_core
from paceline.run.read_warning import GapKind, ReadWarning
from paceline.run.tables.store_file_names import file_name
from paceline.storage.file_tree import Tree

MEMORY_LIMIT = "512MB"
BUFFERED_ROWS = 500_000
OWN_FILE_ROWS = 100_000
"""Rows that are written to a file of their own: inserting them into a table first takes as long as writing them."""
LARGE_SECTION = 4 << 20
"""Bytes; query results of larger sections get Parquet files of their own."""

ColumnChunk = dict[str, NDArray[Any]]
_VALID = "valid:"
"""Before the name of a column: whether its values are known."""


class StoreWriteError(PacelineError):
    """The store's disk is full or gone: no section caused it, and none counts as read."""


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file of one table; unit None: it holds rows of the whole batch."""

    name: str
    table: str
    rows: int
    size: int
    unit: int | None = None


@dataclass
class BatchSink:
    """The Sink that the sections of one batch write to.

    Columns are buffered and inserted together: an INSERT takes milliseconds however few its rows are.
    """

    root: Path
    connection: duckdb.DuckDBPyConnection
    directory: Path
    """Where the Parquet files are written."""
    content: str
    """Eight hexadecimal digits for what is read; part of the files' names."""
    unit: int = 0
    rank: int | None = None
    wanted: frozenset[str] = frozenset(TABLES)
    warnings: list[ReadWarning] = field(default_factory=list)
    _created: set[str] = field(default_factory=set)
    _buffered: dict[str, list[ColumnChunk]] = field(default_factory=lambda: defaultdict(list))
    _buffered_rows: Counter[str] = field(default_factory=Counter)
    _pending: list[tuple[str, ColumnChunk]] = field(default_factory=list)
    _pending_rows: Counter[str] = field(default_factory=Counter)
    _queried: set[str] = field(default_factory=set)
    """Tables that queries of the current section inserted into."""
    _large: bool = False
    """Whether query results of the current section get files of their own."""
    _written: list[WrittenFile] = field(default_factory=list)
    _first: int = 0
    """The first unit of the batch."""

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
        self._pending_rows[table] += length
        if self._pending_rows[table] > BUFFERED_ROWS:
            self._write_pending(table)

    def add_query(self, table: str, select: str, parameters: Sequence[object] = ()) -> int:
        if table not in self.wanted:
            return 0
        given: dict[str, int] = {"_unit": self.unit} if self.rank is None else {"rank": self.rank, "_unit": self.unit}
        rows = f"SELECT *, {', '.join(f'?::BIGINT AS {name}' for name in given)} FROM ({select})"
        parameters = [*given.values(), *parameters]
        if self._large:
            return self._copy(table, _typed(TABLES[table], rows), parameters, unit=self.unit)
        self._create(TABLES[table])
        self._queried.add(table)
        return self._affected(f"INSERT INTO {_stored(table)} BY NAME {rows}", parameters)

    def warn(
        self, message: Sentence, *, file: Path | None = None, line: int | None = None, kind: GapKind = "odd"
    ) -> None:
        core = is_core(self.wanted)
        self.warnings.append(ReadWarning(self.rank, self._relative(file), message, line, kind=kind, core=core))

    # -- one section -------------------------------------------------------------------------------------------------

    def begin(self, *, unit: int, rank: int | None, wanted: frozenset[str], size: int = 0) -> None:
        self.unit, self.rank, self.wanted, self._large = unit, rank, wanted, size >= LARGE_SECTION
        self._first = self._first or unit
        self.warnings, self._pending, self._queried = [], [], set()
        self._pending_rows.clear()

    def commit(self) -> None:
        for table, chunk in self._pending:
            self._buffered[table].append(chunk)
            self._buffered_rows[table] += len(chunk["_unit"])
        for table in {table for table, _ in self._pending}:
            if self._buffered_rows[table] > BUFFERED_ROWS:
                self._flush(table)
        self._pending = []

    def roll_back(self, error: BaseException, file: Path | None) -> None:
        """Drop the rows of a section that failed and keep the error as its warning."""
        self._pending = []
        for table in self._queried:
            self.connection.execute(f"DELETE FROM {_stored(table)} WHERE _unit = ?", [self.unit])
        for written in [written for written in self._written if written.unit == self.unit]:
            (self.directory / written.name).unlink()
            self._written.remove(written)
        line = error.line if isinstance(error, FormatError) else None
        where = (error.file if isinstance(error, FormatError) else None) or file
        core = is_core(self.wanted)
        self.warnings = [
            ReadWarning(self.rank, self._relative(where), describe_error(error), line, lost=True, core=core)
        ]

    # -- the end of the batch ----------------------------------------------------------------------------------------

    def write(self) -> list[WrittenFile]:
        """Write every table that has rows; returns all files of the batch."""
        self.flush()
        for table in sorted(self._created):
            self._copy(table, f"FROM {_stored(table)}")
        return self._written

    def _copy(self, table: str, select: str, parameters: Sequence[object] = (), *, unit: int | None = None) -> int:
        """Write under a temporary name and rename; no file if there are no rows."""
        name = file_name(table, first=self._first, position=len(self._written), content=self.content)
        # A unique name: a cluster may give a batch to a second worker while the first, believed dead, still writes.
        temporary = self.directory / f".{name}.{uuid.uuid4().hex}.tmp"
        try:
            statement = f"COPY ({select}) TO ? (FORMAT parquet, COMPRESSION zstd)"
            rows = self._affected(statement, [*parameters, str(temporary)])
            if rows:
                os.replace(temporary, self.directory / name)
                self._written.append(WrittenFile(name, table, rows, (self.directory / name).stat().st_size, unit))
        except duckdb.IOException as error:
            if temporary.name not in str(error):
                raise  # an error of the source
            raise StoreWriteError(
                f"{self.directory}: cannot be written ({disk_error_reason(error)})",
                hint="what was read so far is stored; free some space, or set --store to another directory",
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        return rows

    def _affected(self, statement: str, parameters: Sequence[object]) -> int:
        rows = self.connection.execute(statement, list(parameters)).fetchall()
        return int(rows[0][0]) if rows else 0

    def flush(self) -> None:
        """Insert all buffered columns."""
        for table in list(self._buffered):
            self._flush(table)

    def _flush(self, table: str) -> None:
        chunks = self._buffered.pop(table, [])
        self._buffered_rows[table] = 0
        if not chunks:
            return
        with self._staged(chunks) as select:
            if sum(len(chunk["_unit"]) for chunk in chunks) >= OWN_FILE_ROWS:
                self._copy(table, _typed(TABLES[table], select))
            else:
                self._create(TABLES[table])
                self.connection.execute(f"INSERT INTO {_stored(table)} BY NAME {select}")

    def _write_pending(self, table: str) -> None:
        """Of a section that is not read to its end: to files of its own, which are removed if the section fails."""
        chunks = [chunk for name, chunk in self._pending if name == table]
        self._pending = [(name, chunk) for name, chunk in self._pending if name != table]
        self._pending_rows[table] = 0
        with self._staged(chunks) as select:
            self._copy(table, _typed(TABLES[table], select), unit=self.unit)

    @contextmanager
    def _staged(self, chunks: list[ColumnChunk]) -> Iterator[str]:
        """A SELECT of the rows of these chunks."""
        staged = _with_validity(_joined(chunks))
        self.connection.register("staged", staged)
        columns = ", ".join(_staged_column(name, staged) for name in staged if not name.startswith(_VALID))
        yield f"SELECT {columns} FROM staged"
        self.connection.unregister("staged")

    def _create(self, table: TableSchema) -> None:
        if table.name in self._created:
            return
        columns = ", ".join(f"{_quoted(column.name)} {column.type}" for column in table.columns)
        self.connection.execute(f"CREATE TABLE IF NOT EXISTS {_stored(table.name)} ({columns}, _unit BIGINT)")
        self._created.add(table.name)

    def _relative(self, file: Path | None) -> str | None:
        if file is None:
            return None
        return str(file.relative_to(self.root)) if file.is_relative_to(self.root) else str(file)


def open_batch(tree: Tree, directory: Path, scratch: Path, *, content: str, threads: int | None = None) -> BatchSink:
    settings: dict[str, str | int | bool] = {"preserve_insertion_order": False}
    if threads:
        settings["threads"] = threads
    return BatchSink(tree.root, open_memory_database(spill=scratch, **settings), directory, content)


def open_memory_database(*, spill: Path, **settings: str | int | bool) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with bounded memory; `spill` is the directory for what does not fit."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY_LIMIT,
        "temp_directory": str(spill),
        **settings,
    }
    connection = duckdb.connect(config=config)
    connection.execute("SET enable_progress_bar = false")  # it would be mixed into our output
    return connection


def disk_error_reason(error: BaseException) -> str:
    """The reason of the operating system, extracted from DuckDB's long message."""
    text = " ".join(str(error).split())
    known = re.search(r"No space left on device|Disk quota exceeded|Read-only file system|Permission denied", text)
    return known[0] if known else text[:160]


def describe_error(error: BaseException) -> Sentence:
    """One line for users, whatever library raised the error."""
    if isinstance(error, PacelineError):
        return error.said
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, UnicodeDecodeError) or "nvalid unicode" in text or "not utf-8" in text.lower():
        return message("not_utf8_skipped", error=text[:160])
    if isinstance(error, OSError):
        return message("cannot_read", error=error.strerror or text)
    return message("not_understood", error=text[:200])


def _length(table: TableSchema, columns: Mapping[str, Values | Any]) -> int:
    lengths = {len(values) for values in columns.values() if _is_column(values)}
    unknown = set(columns) - set(table.column_names)
    if unknown or len(lengths) > 1:
        raise AssertionError(f"{table.name}: unknown columns {unknown} or unequal lengths {lengths}")
    return lengths.pop() if lengths else 1


def _is_column(values: object) -> bool:
    return isinstance(values, (list, tuple, np.ndarray))


def _array(kind: str, values: Values | Any, length: int) -> NDArray[Any]:
    """A NumPy column that DuckDB can scan: masked where None, objects only for text."""
    if not _is_column(values):
        values = [values] * length
    if isinstance(values, np.ndarray) and (values.dtype != object or kind == "VARCHAR"):
        return values
    if kind == "VARCHAR":
        return np.array(values, dtype=object)
    dtype: Any = {"BIGINT": np.int64, "DOUBLE": np.float64, "BOOLEAN": np.bool_}[kind]
    if kind == "BIGINT":
        try:
            return np.array(values, dtype=dtype)
        except TypeError:
            pass  # some are None
    mask = np.fromiter((value is None for value in values), dtype=np.bool_, count=length)
    if not mask.any():
        return np.array(values, dtype=dtype)
    filled = [0 if value is None else value for value in values]
    return np.ma.masked_array(np.array(filled, dtype=dtype), mask=mask)


def _joined(chunks: list[ColumnChunk]) -> ColumnChunk:
    """Chunks of one table concatenated; a column that a chunk lacks is null there."""
    names = {name: chunk[name].dtype for chunk in chunks for name in chunk}
    return {name: _concatenated([_column(chunk, name, kind) for chunk in chunks]) for name, kind in names.items()}


def _with_validity(columns: ColumnChunk) -> ColumnChunk:
    """A masked column as values and validity: DuckDB before 2.0 ignores the masks of NumPy."""
    found: ColumnChunk = {}
    for name, values in columns.items():
        found[name] = np.ma.getdata(values)
        if isinstance(values, np.ma.MaskedArray):
            found[_VALID + name] = ~np.ma.getmaskarray(values)
    return found


def _staged_column(name: str, staged: ColumnChunk) -> str:
    if _VALID + name not in staged:
        return _quoted(name)
    return f"CASE WHEN {_quoted(_VALID + name)} THEN {_quoted(name)} END AS {_quoted(name)}"


def _column(chunk: ColumnChunk, name: str, kind: np.dtype[Any]) -> NDArray[Any]:
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


def _typed(table: TableSchema, select: str) -> str:
    """A SELECT with all columns of the table in their types; columns that the given one lacks are null, as with INSERT."""
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
