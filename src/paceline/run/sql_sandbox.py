"""Restrictions for SQL that users type: one statement that reads the run's tables, and no other file of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import duckdb

from paceline.core.errors import UsageError
from paceline.core.text_encoding import is_utf8

_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?", re.IGNORECASE)
_PIVOT = re.compile(r"\s*(pivot|pivot_wider|from|select|with)\b", re.IGNORECASE)
_HINT = "use SELECT, FROM, PIVOT, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN; --output writes the rows to a file"


def check_read_only(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Refuse all but one reading statement: DuckDB could also write files (COPY), open them (ATTACH), load code (LOAD).

    The connection only parses: the module's own function would open a second database for that, 15 ms of CPU.
    """
    if not is_utf8(query):
        raise UsageError("the query is not UTF-8 text")
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as error:
        raise query_error(error) from error
    if len(statements) != 1:
        raise UsageError(f"expected one SQL statement, found {len(statements)}")
    if not _is_read_only(connection, statements[0]):
        raise UsageError(f"{statements[0].type.name} is not allowed: only queries that read are", hint=_HINT)


def _is_read_only(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> bool:
    kind = statement.type.name
    if kind == "EXPLAIN":
        # EXPLAIN ANALYZE runs what it explains.
        return _is_select(connection, _EXPLAIN.sub("", statement.query, count=1))
    if kind == "MULTI":
        # A PIVOT is several statements, and so is a COPY or CREATE of one.
        return _PIVOT.match(statement.query) is not None
    return kind == "SELECT"


def _is_select(connection: duckdb.DuckDBPyConnection, query: str) -> bool:
    try:
        return [statement.type.name for statement in connection.extract_statements(query)] == ["SELECT"]
    except duckdb.Error:
        return False


def restrict_to_directories(connection: duckdb.DuckDBPyConnection, directories: Iterable[Path]) -> None:
    """From now on only files below these directories can be opened, no extension loaded and no setting changed.

    Memory still spills to the connection's temporary directory.
    """
    connection.execute("SET allowed_directories = ?", [[f"{path.resolve()}/" for path in directories]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def query_error(error: duckdb.Error) -> UsageError:
    """The error for a query that DuckDB refuses or that fails while it runs."""
    hint = "queries can read the run's tables but no files" if isinstance(error, duckdb.PermissionException) else None
    return UsageError(f"the query failed: {error}", hint=hint)
