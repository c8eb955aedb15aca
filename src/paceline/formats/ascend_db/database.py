"""Read-only access to an Ascend SQLite result, tolerant of schema versions and of hostile files.

The file is opened immutable (so that no -wal or -shm file is created), views and virtual tables are ignored (a view can
run for ever), and numbers are selected with an expression that is null for anything that is not a number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from paceline.core.errors import FormatError
from paceline.formats.ascend_db.columns import Column, StringIds, as_column

MAGIC = b"SQLite format 3\x00"
CHUNK = 100_000
"""Rows in memory at once when a large table is streamed."""


@dataclass(frozen=True)
class Database:
    """An open file and its tables (without views)."""

    path: Path
    connection: sqlite3.Connection
    columns: dict[str, frozenset[str]]
    views: frozenset[str]

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
        return self.connection.execute(sql, parameters).fetchall()

    def stream(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """The columns of a query, CHUNK rows at a time."""
        cursor = self.connection.execute(sql, parameters)
        while rows := cursor.fetchmany(CHUNK):
            yield list(zip(*rows, strict=True))

    def columns_of(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[list[Column]]:
        """The same as arrays."""
        for columns in self.stream(sql, parameters):
            yield [as_column(values) for values in columns]

    def names(self, *uses: str) -> StringIds:
        """The strings that these id columns ("TABLE.column") refer to; all of STRING_IDS may be far more."""
        used = [f"SELECT {self.any(use)} FROM {use.split('.')[0]}" for use in uses if self.any(use) != "NULL"]
        if not used or not self.has("STRING_IDS", "id", "value"):
            return StringIds()
        wanted = " UNION ".join(used)
        return StringIds(
            {
                key: as_text(value)
                for key, value in self.rows(f"SELECT id, value FROM STRING_IDS WHERE id IN ({wanted})")
                if value is not None
            }
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
        raise FormatError(f"cannot be opened as SQLite ({error})", file=path) from error
    try:
        yield _with_schema(path, connection)
    except sqlite3.Error as error:
        raise FormatError(f"is damaged, cut off or has other columns than expected ({error})", file=path) from error
    finally:
        connection.close()


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _with_schema(path: Path, connection: sqlite3.Connection) -> Database:
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    schema = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    virtual = {name for kind, name, sql in schema if kind == "view" or _is_virtual(sql)}
    columns = {name: _columns(connection, name) for _, name, _ in schema if name not in virtual}
    return Database(path, connection, columns, frozenset(virtual))


def _is_virtual(sql: str | None) -> bool:
    return (sql or "").split()[:2] == ["CREATE", "VIRTUAL"]


def _columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    return frozenset(row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,)))
