"""An Ascend SQLite result opened for reading: strictly read-only, tolerant of drifting schemas, never trusting it.

The file may come from anywhere. It is opened immutable (so that no -wal or -shm appears beside it), views and virtual
tables are not looked at (a view can run for ever), and every number goes through an expression that yields null for
anything that is not one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from urllib.parse import quote

from paceline.errors import FormatError

MAGIC = b"SQLite format 3\x00"
CHUNK = 100_000
"""Rows held in memory at once while a large table streams through."""


@dataclass(frozen=True)
class Names:
    """String ids → text, for the ids one section uses."""

    known: dict[Any, str] = field(default_factory=dict)

    def of(self, values: Iterable[Any]) -> list[str | None]:
        """Text of each id; a column that already holds text is passed through, an unknown id is None."""
        known = self.known
        return [value if isinstance(value, str) else known.get(value) for value in values]


@dataclass(frozen=True)
class Database:
    """One open file and the tables (not views) it really has."""

    path: Path
    connection: sqlite3.Connection
    columns: dict[str, frozenset[str]]
    views: frozenset[str]

    def has(self, table: str, *columns: str) -> bool:
        return table in self.columns and self.columns[table].issuperset(columns)

    def any(self, name: str) -> str:
        """SQL of "TABLE.column" as it is, NULL where this version of the schema lacks it."""
        table, column = name.split(".")
        return f'"{table}"."{column}"' if self.has(table, column) else "NULL"

    def integer(self, name: str) -> str:
        """SQL of "TABLE.column" as an integer; text such as '1736410576395167660' counts, other text is null."""
        sql = self.any(name)
        if sql == "NULL":
            return sql
        return (
            f"CASE typeof({sql}) WHEN 'integer' THEN {sql} WHEN 'real' THEN CAST({sql} AS INTEGER)"
            f" WHEN 'text' THEN CASE WHEN ltrim({sql}, '-') GLOB '[0-9]*' THEN CAST({sql} AS INTEGER) END END"
        )

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query whose result is known to be small."""
        return self.connection.execute(sql, parameters).fetchall()

    def stream(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        """The columns of a query, CHUNK rows at a time."""
        cursor = self.connection.execute(sql)
        while rows := cursor.fetchmany(CHUNK):
            yield list(zip(*rows, strict=True))

    def names(self, *uses: str) -> Names:
        """The strings behind the id columns ("TABLE.column") named; the whole of STRING_IDS may be far larger."""
        used = [f"SELECT {self.any(use)} FROM {use.split('.')[0]}" for use in uses if self.any(use) != "NULL"]
        if not used or not self.has("STRING_IDS", "id", "value"):
            return Names()
        wanted = " UNION ".join(used)
        return Names({
            key: as_text(value)
            for key, value in self.rows(f"SELECT id, value FROM STRING_IDS WHERE id IN ({wanted})")
            if value is not None
        })  # fmt: skip

    def enum(self, table: str) -> dict[Any, str]:
        """An ENUM_… table: number → name."""
        if not self.has(table, "id", "name"):
            return {}
        return {key: as_text(name) for key, name in self.rows(f"SELECT id, name FROM {table}") if name is not None}


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open for reading; whatever SQLite finds wrong with the file, then or later, is a FormatError that names it."""
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(uri, uri=True)
    except sqlite3.Error as error:
        raise FormatError(f"cannot be opened as SQLite ({error})", file=path) from error
    try:
        yield _examined(path, connection)
    except sqlite3.Error as error:
        raise FormatError(f"is damaged, cut off or not what its tables promise ({error})", file=path) from error
    finally:
        connection.close()


def is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def nanoseconds(value: Any, unit: int) -> int | None:
    """A time as recorded (number or text, perhaps ending in a TAB) × unit (ns per unit), or None.

    Goes through the shortest decimal that is the recorded value: 1736410576431645.2 µs × 1000 as a float would be
    256 ns off.

    >>> nanoseconds(1736410576431645.2, 1000), nanoseconds("2300\\t", 1000), nanoseconds("N/A", 1000)
    (1736410576431645200, 2300000, None)
    """
    if value is None:
        return None
    try:
        scaled = Decimal(str(value).strip()) * unit
        result = int(scaled.to_integral_value())
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return result if abs(result) < 1 << 62 else None


def byte_count(megabytes: Any) -> int | None:
    """Ascend's MB are decimal: 2.064384 → 2064384.

    >>> byte_count(2.064384)
    2064384
    """
    return nanoseconds(megabytes, 1_000_000)


def _examined(path: Path, connection: sqlite3.Connection) -> Database:
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
