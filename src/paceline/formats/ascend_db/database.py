"""Read-only access to an Ascend SQLite result, tolerant of schema versions and of hostile files.

The file is opened immutable (so that no -wal or -shm file is created), views and virtual tables are ignored (a view can
run for ever), and numbers are selected with an expression that is null for anything that is not a number.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import numpy as np

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.ascend_db.columns import Column, StringIds, as_column, as_integers, unknown

MAGIC = b"SQLite format 3\x00"
CHUNK = 100_000
"""Rows in memory at once when a large table is streamed."""
SMALL = 32 << 20
"""Bytes of a database whose strings may all be in memory."""

_JSON: Final = msgspec.json.Decoder(list[int | None])


@dataclass(frozen=True)
class Database:
    """An open file and its tables (without views)."""

    path: Path
    connection: sqlite3.Connection
    columns: dict[str, frozenset[str]]
    views: frozenset[str]
    small: bool
    """Whether all its strings may be in memory."""
    declared_integers: frozenset[str]
    """Columns ("TABLE.column") that hold integers unless a value cannot be one."""
    without_rowid: frozenset[str]
    """Tables whose rows have no number, or which use its name for something else."""

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
        self,
        source: str,
        integers: Sequence[str],
        others: Sequence[str] = (),
        where: str = "true",
        parameters: Sequence[Any] = (),
    ) -> Iterator[list[Column]]:
        """columns_of, without the rows in which the first column, a time, is unknown or negative."""
        for columns in self.columns_of(source, integers, others, where, parameters):
            known = np.ma.filled(columns[0], -1) >= 0
            if known.any():
                yield columns if known.all() else [column[known] for column in columns]

    def columns_of(
        self,
        source: str,
        integers: Sequence[str],
        others: Sequence[str] = (),
        where: str = "true",
        parameters: Sequence[Any] = (),
    ) -> Iterator[list[Column]]:
        """Columns ("TABLE.column") of a table and what is joined to it, about CHUNK rows at a time."""
        for rows in self._rowid_ranges(source.split()[0]):
            condition = f"({where}) AND {rows}"
            try:
                yield self._decoded(source, integers, others, condition, parameters)
            except (msgspec.DecodeError, sqlite3.OperationalError):  # text, floats or blobs
                select = ", ".join([*map(self.integer, integers), *map(self.any, others)])
                for columns in self.stream(f"SELECT {select} FROM {source} WHERE {condition}", parameters):
                    yield [as_column(values) for values in columns]

    def _decoded(
        self, source: str, integers: Sequence[str], others: Sequence[str], condition: str, parameters: Sequence[Any]
    ) -> list[Column]:
        """Columns of integers: SQLite writes each as one JSON array, which takes half as long as rows of objects."""
        values = [self.any(name) if name in self.declared_integers else self.integer(name) for name in integers]
        values += map(self.any, others)
        select = ", ".join("NULL" if value == "NULL" else f"json_group_array({value})" for value in values)
        [arrays] = self.rows(f"SELECT {select} FROM {source} WHERE {condition}", parameters)
        columns = [None if array is None else as_integers(_JSON.decode(array)) for array in arrays]
        length = next(len(column) for column in columns if column is not None)
        return [unknown(length) if column is None else column for column in columns]

    def _rowid_ranges(self, table: str) -> list[str]:
        """Conditions that select at most about CHUNK rows each."""
        [(count,)] = self.rows(f"SELECT count(*) FROM {table}")
        if count <= CHUNK or table in self.without_rowid:
            return ["true"]
        [(low, high)] = self.rows(f"SELECT (SELECT min(rowid) FROM {table}), (SELECT max(rowid) FROM {table})")
        step = (high - low) // -(-count // CHUNK) + 1
        return [f"{table}.rowid BETWEEN {first} AND {first + step - 1}" for first in range(low, high + 1, step)]

    def names(self, *uses: str) -> StringIds:
        """The strings that these id columns ("TABLE.column") refer to; all of STRING_IDS may be far more.

        In a small database all are read: finding out which are used takes longer.
        """
        used = [f"SELECT {self.any(use)} FROM {use.split('.')[0]}" for use in uses if self.any(use) != "NULL"]
        if not used or not self.has("STRING_IDS", "id", "value"):
            return StringIds()
        return self._strings if self.small else self._read_strings(f"WHERE id IN ({' UNION '.join(used)})")

    @cached_property
    def _strings(self) -> StringIds:
        return self._read_strings("")

    def _read_strings(self, where: str) -> StringIds:
        rows = self.rows(f"SELECT id, value FROM STRING_IDS {where}")
        return StringIds(
            {key: value if isinstance(value, str) else as_text(value) for key, value in rows if value is not None}
        )

    def enum(self, table: str) -> dict[Any, str]:
        """An ENUM_… table: number → name."""
        if not self.has(table, "id", "name"):
            return {}
        return {key: as_text(name) for key, name in self.rows(f"SELECT id, name FROM {table}") if name is not None}


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open for reading; errors of SQLite, now or later, become a FormatError with the file."""
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(uri, uri=True)
    except sqlite3.Error as error:
        raise FormatError(message("sqlite_open", error=error), file=path) from error
    try:
        yield _with_schema(path, connection)
    except sqlite3.Error as error:
        raise FormatError(message("sqlite_damaged", error=error), file=path) from error
    finally:
        connection.close()


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _decoded_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _with_schema(path: Path, connection: sqlite3.Connection) -> Database:
    connection.text_factory = _decoded_text
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    schema = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    virtual = {name for kind, name, sql in schema if kind == "view" or _is_virtual(sql)}
    described = _columns(connection, [name for _, name, _ in schema if name not in virtual])
    return Database(
        path,
        connection,
        columns={name: frozenset(columns) for name, columns in described.items()},
        views=frozenset(virtual),
        small=path.stat().st_size <= SMALL,
        declared_integers=frozenset(
            f"{table}.{name}" for table, columns in described.items() for name, kind in columns.items() if kind == "INT"
        ),
        without_rowid=frozenset(
            name for _, name, sql in schema if "rowid" in (sql or "").lower() or name not in described
        ),
    )


def _is_virtual(sql: str | None) -> bool:
    return (sql or "").split()[:2] == ["CREATE", "VIRTUAL"]


def _columns(connection: sqlite3.Connection, tables: list[str]) -> dict[str, dict[str, str]]:
    """Table → column → INT or another type, by the rule of SQLite."""
    described: dict[str, dict[str, str]] = {table: {} for table in tables}
    sql = (
        "SELECT tables.value, info.name, info.type FROM json_each(?) AS tables, pragma_table_info(tables.value) AS info"
    )
    for table, name, kind in connection.execute(sql, [json.dumps(tables)]):
        described[table][name] = "INT" if "INT" in kind.upper() else kind
    return described
