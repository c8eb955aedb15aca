"""Read-only access to an Ascend SQLite result, tolerant of schema versions and of hostile files.

The file is opened immutable (so that no -wal or -shm file is created), views and virtual tables are ignored (a view can
run for ever), and numbers are selected with an expression that is null for anything that is not a number.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
import numpy as np

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.ascend_db.columns import Column, KeyedRows, StringIds, as_column, as_integers, unknown
from paceline.formats.ascend_db.pages import PageError, PageFile, StoredTable, joined, open_pages

MAGIC = b"SQLite format 3\x00"
CHUNK = 100_000
"""Rows in memory at once when a large table is streamed."""
FEW_STRINGS = 32 << 20
"""Bytes of strings that may all be in memory."""
_KEPT = 2
"""Connections kept open: a rank's database and the sums beside it."""
MOST_JOINED = 2_000_000
"""Rows of a joined table in memory; SQLite joins larger ones."""

_UNUSUAL: Final = re.compile(r"\bDEFAULT\b|\bGENERATED\b|\bAS\s*\(|\bWITHOUT\b|\bDESC\b", re.IGNORECASE)
"""What lets a table hold other values than its records do, or other pages."""
_JSON: Final = msgspec.json.Decoder(list[int | None])


Version = tuple[int, int]
"""Size and time of a file."""


@dataclass(frozen=True)
class Schema:
    """The tables of a database (without views)."""

    columns: dict[str, frozenset[str]]
    views: frozenset[str]
    declared_integers: frozenset[str]
    """Columns ("TABLE.column") that hold integers unless a value cannot be one."""
    without_rowid: frozenset[str]
    """Tables whose rows have no number, or which use its name for something else."""
    stored: dict[str, StoredTable]
    """Where the rows of a table lie."""


@dataclass(frozen=True)
class Join:
    """Another table, whose row is found by a number that both have."""

    table: str
    column: str
    required: bool = True
    """Whether rows without the other are left out."""

    def sql(self, table: str) -> str:
        kind = "JOIN" if self.required else "LEFT JOIN"
        return f"{table} {kind} {self.table} ON {self.table}.{self.column} = {table}.{self.column}"


@dataclass(frozen=True)
class Database:
    """An open file; a connection to SQLite is made when it is needed."""

    path: Path
    schema: Schema
    version: Version

    @property
    def columns(self) -> dict[str, frozenset[str]]:
        return self.schema.columns

    @property
    def views(self) -> frozenset[str]:
        return self.schema.views

    @cached_property
    def connection(self) -> sqlite3.Connection:
        return _connections.take(self.path, self.version)

    def has(self, table: str, *columns: str) -> bool:
        return table in self.columns and self.columns[table].issuperset(columns)

    def any(self, name: str) -> str:
        """SQL of "TABLE.column", NULL if this version of the schema lacks it."""
        table, column = name.split(".")
        return f'"{table}"."{column}"' if self.has(table, column) else "NULL"

    def integer(self, name: str) -> str:
        """SQL of "TABLE.column" as an integer; text such as '1736410576395167660' is converted, other text is null."""
        sql = self.any(name)
        if sql == "NULL":
            return sql
        return (
            f"CASE typeof({sql}) WHEN 'integer' THEN {sql} WHEN 'real' THEN CAST({sql} AS INTEGER)"
            f" WHEN 'text' THEN CASE WHEN ltrim({sql}, '-') GLOB '[0-9]*' THEN CAST({sql} AS INTEGER) END END"
        )

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query with a small result."""
        self.connection.text_factory = str
        try:
            return self.connection.execute(sql, parameters).fetchall()
        except sqlite3.OperationalError:  # mostly text that is not UTF-8
            self.connection.text_factory = _decoded_text
            return self.connection.execute(sql, parameters).fetchall()
        finally:
            self.connection.text_factory = _decoded_text

    def stream(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """The columns of a query, CHUNK rows at a time."""
        cursor = self.connection.execute(sql, parameters)
        while rows := cursor.fetchmany(CHUNK):
            yield list(zip(*rows, strict=True))

    def timed_columns(
        self, table: str, integers: Sequence[str], others: Sequence[str] = (), join: Join | None = None
    ) -> Iterator[list[Column]]:
        """columns_of, without the rows in which the first column, a time, is unknown or negative."""
        for columns in self.columns_of(table, integers, others, join):
            known = np.ma.filled(columns[0], -1) >= 0
            if known.any():
                yield columns if known.all() else [column[known] for column in columns]

    def columns_of(
        self, table: str, integers: Sequence[str], others: Sequence[str] = (), join: Join | None = None
    ) -> Iterator[list[Column]]:
        """Columns ("TABLE.column") of a table and what is joined to it, about CHUNK rows at a time."""
        read: int | None = None
        try:
            for last, columns in self._from_pages(table, [*integers, *others], join):
                if len(columns[0]):
                    yield columns
                read = last
        except (PageError, OSError):
            yield from self._from_sqlite(table, integers, others, join, read)

    # -- from the pages ----------------------------------------------------------------------------------------------

    def _from_pages(self, table: str, names: Sequence[str], join: Join | None) -> Iterator[tuple[int, list[Column]]]:
        with self.path.open("rb", buffering=0) as file:
            pages = open_pages(file)
            others = [name for name in names if join and name.startswith(f"{join.table}.")]
            found = _joined_rows(self._all_rows(pages, join, others), others) if join else None
            own = [name for name in names if name not in others]
            key = [f"{table}.{join.column}"] if join else []
            for last, columns in self._stored_columns(pages, table, [*own, *key]):
                by_name = dict(zip(own, columns, strict=False))
                if join and found:
                    by_name = found.joined(by_name, columns[-1], required=join.required)
                yield last, [by_name[name] for name in names]

    def _stored_columns(self, pages: PageFile, table: str, names: Sequence[str]) -> Iterator[tuple[int, list[Column]]]:
        """Columns of one table; one that it lacks is unknown."""
        if table not in self.schema.stored:
            raise PageError("a table that only SQLite reads")
        present = [name for name in names if self.any(name) != "NULL"]
        plain = [name.partition(".")[2] for name in present]
        for last, columns in pages.columns(self.schema.stored[table], plain, rows=CHUNK):
            by_name = dict(zip(present, columns, strict=True))
            length = len(columns[0]) if columns else 0
            yield last, [by_name[name] if name in by_name else unknown(length) for name in names]

    def _all_rows(self, pages: PageFile, join: Join, names: Sequence[str]) -> list[Column]:
        """The number that a table is joined by, and columns, of all its rows."""
        parts: list[list[Column]] = []
        for _, columns in self._stored_columns(pages, join.table, [f"{join.table}.{join.column}", *names]):
            parts.append([_narrowed(column) for column in columns])
            if sum(len(columns[0]) for columns in parts) > MOST_JOINED:
                raise PageError("too many rows for the memory")
        return joined(parts) if parts else [unknown(0)] * (1 + len(names))

    # -- from SQLite -------------------------------------------------------------------------------------------------

    def _from_sqlite(
        self, table: str, integers: Sequence[str], others: Sequence[str], join: Join | None, after: int | None
    ) -> Iterator[list[Column]]:
        """What the pages did not give: the rows after a number."""
        source = join.sql(table) if join else table
        rest = "" if after is None else f" AND {table}.rowid > {after}"
        for rows in self._rowid_ranges(table):
            try:
                yield self._decoded(source, integers, others, rows + rest)
            except (msgspec.DecodeError, sqlite3.OperationalError):  # text, floats or blobs
                select = ", ".join([*map(self.integer, integers), *map(self.any, others)])
                for columns in self.stream(f"SELECT {select} FROM {source} WHERE {rows}{rest}"):
                    yield [as_column(values) for values in columns]

    def _decoded(self, source: str, integers: Sequence[str], others: Sequence[str], condition: str) -> list[Column]:
        """Columns of integers: SQLite writes each as one JSON array, which takes half as long as rows of objects."""
        declared = self.schema.declared_integers
        values = [self.any(name) if name in declared else self.integer(name) for name in integers]
        values += map(self.any, others)
        select = ", ".join("NULL" if value == "NULL" else f"json_group_array({value})" for value in values)
        [arrays] = self.rows(f"SELECT {select} FROM {source} WHERE {condition}")
        columns = [None if array is None else as_integers(_JSON.decode(array)) for array in arrays]
        length = next(len(column) for column in columns if column is not None)
        return [unknown(length) if column is None else column for column in columns]

    def _rowid_ranges(self, table: str) -> list[str]:
        """Conditions that select at most about CHUNK rows each."""
        [(count,)] = self.rows(f"SELECT count(*) FROM {table}")
        if count <= CHUNK or table in self.schema.without_rowid:
            return ["true"]
        [(low, high)] = self.rows(f"SELECT (SELECT min(rowid) FROM {table}), (SELECT max(rowid) FROM {table})")
        step = (high - low) // -(-count // CHUNK) + 1
        return [f"{table}.rowid BETWEEN {first} AND {first + step - 1}" for first in range(low, high + 1, step)]

    # -- texts -------------------------------------------------------------------------------------------------------

    def names(self, *uses: str) -> StringIds:
        """The strings that these id columns ("TABLE.column") refer to; all of STRING_IDS may be far more.

        If they are few all are read: finding out which are used takes longer.
        """
        used = [f"SELECT {self.any(use)} FROM {use.split('.')[0]}" for use in uses if self.any(use) != "NULL"]
        if not used or not self.has("STRING_IDS", "id", "value"):
            return StringIds()
        strings = _all_strings(self.path, self.version)
        return self._read_strings(f"WHERE id IN ({' UNION '.join(used)})") if strings is None else strings

    def _read_strings(self, where: str) -> StringIds:
        rows = self.rows(f"SELECT id, value FROM STRING_IDS {where}")
        return StringIds(
            {key: value if isinstance(value, str) else as_text(value) for key, value in rows if value is not None}
        )

    @cached_property
    def few_strings(self) -> bool:
        [(size,)] = self.rows("SELECT total(length(value)) + 64 * count(*) FROM STRING_IDS")
        return bool(size <= FEW_STRINGS)

    def enum(self, table: str) -> dict[Any, str]:
        """An ENUM_… table: number → name."""
        if not self.has(table, "id", "name"):
            return {}
        return {key: as_text(name) for key, name in self.rows(f"SELECT id, name FROM {table}") if name is not None}


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open for reading; errors of SQLite, now or later, become a FormatError with the file."""
    database: Database | None = None
    try:
        status = path.stat()
        version = status.st_size, status.st_mtime_ns
        database = Database(path, _schema(path, version), version)
        yield database
    except sqlite3.Error as error:
        raise FormatError(message("sqlite_damaged", error=error), file=path) from error
    finally:
        if database is not None and "connection" in vars(database):
            _connections.put_back(path, version, database.connection)


class _Connections(threading.local):
    """Connections of this thread that were used last: the sections of a rank read the same files one after the other."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Path, Version], sqlite3.Connection] = {}

    def take(self, path: Path, version: Version) -> sqlite3.Connection:
        return self._kept.pop((path, version), None) or _connected(path)

    def put_back(self, path: Path, version: Version, connection: sqlite3.Connection) -> None:
        if (path, version) in self._kept:
            connection.close()
            return
        self._kept[path, version] = connection
        if len(self._kept) > _KEPT:
            self._kept.pop(next(iter(self._kept))).close()


_connections = _Connections()


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _decoded_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _connected(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(uri, uri=True)
    except sqlite3.Error as error:
        raise FormatError(message("sqlite_open", error=error), file=path) from error
    connection.text_factory = _decoded_text
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    return connection


@lru_cache(maxsize=128)
def _schema(path: Path, version: Version) -> Schema:
    connection = _connections.take(path, version)
    try:
        return _read_schema(connection)
    finally:
        _connections.put_back(path, version, connection)


@lru_cache(maxsize=1)
def _all_strings(path: Path, version: Version) -> StringIds | None:
    """STRING_IDS; None if it is large."""
    with open_database(path) as database:
        return database._read_strings("") if database.few_strings else None


def _read_schema(connection: sqlite3.Connection) -> Schema:
    schema = connection.execute(
        "SELECT type, name, rootpage, sql FROM sqlite_master WHERE type IN ('table', 'view')"
    ).fetchall()
    virtual = {name for kind, name, _, sql in schema if kind == "view" or _is_virtual(sql)}
    described = _described(connection, [name for _, name, _, _ in schema if name not in virtual])
    return Schema(
        columns={name: frozenset(column.name for column in columns) for name, columns in described.items()},
        views=frozenset(virtual),
        declared_integers=frozenset(
            f"{table}.{column.name}" for table, columns in described.items() for column in columns if column.is_integer
        ),
        without_rowid=frozenset(
            name for _, name, _, sql in schema if "rowid" in (sql or "").lower() or name not in described
        ),
        stored={
            name: _stored(root, described[name])
            for _, name, root, sql in schema
            if name in described and root and not _UNUSUAL.search(sql or "")
        },
    )


def _is_virtual(sql: str | None) -> bool:
    return (sql or "").split()[:2] == ["CREATE", "VIRTUAL"]


class _ColumnInfo(NamedTuple):
    name: str
    kind: str
    key: int
    """Its place in the primary key, from 1."""

    @property
    def is_integer(self) -> bool:
        """By the rule of SQLite."""
        return "INT" in self.kind.upper()


def _described(connection: sqlite3.Connection, tables: list[str]) -> dict[str, list[_ColumnInfo]]:
    described: dict[str, list[_ColumnInfo]] = {table: [] for table in tables}
    sql = (
        "SELECT tables.value, info.name, info.type, info.pk "
        "FROM json_each(?) AS tables, pragma_table_info(tables.value) AS info ORDER BY tables.key, info.cid"
    )
    for table, *column in connection.execute(sql, [json.dumps(tables)]):
        described[table].append(_ColumnInfo(*column))
    return described


def _stored(root: int, columns: list[_ColumnInfo]) -> StoredTable:
    keys = [column for column in columns if column.key]
    is_rowid = len(keys) == 1 and keys[0].kind.upper() == "INTEGER"
    return StoredTable(root, tuple(column.name for column in columns), keys[0].name if is_rowid else None)


def _narrowed(column: Column) -> Column:
    """In half of the memory, if its numbers allow it."""
    values = np.ma.getdata(column)
    if not len(values) or values.min() < -(1 << 31) or values.max() >= 1 << 31:
        return column
    return column.astype(np.int32)


def _joined_rows(columns: list[Column], names: Sequence[str]) -> KeyedRows:
    return KeyedRows.of(columns[0], dict(zip(names, columns[1:], strict=True)))
