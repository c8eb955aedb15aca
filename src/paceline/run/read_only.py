"""What a question may do: read the run's tables, and nothing else on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import duckdb

from paceline.errors import UsageError

_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?", re.IGNORECASE)
_PIVOT = re.compile(r"\s*(pivot|pivot_wider|from|select|with)\b", re.IGNORECASE)
_HINT = "SELECT, FROM, PIVOT, DESCRIBE, SUMMARIZE, SHOW and EXPLAIN are; --output writes the rows to a file"


def check_reads_only(query: str) -> None:
    """Refuse all but one statement that reads: DuckDB would also write files (COPY), open them (ATTACH), load code (LOAD)."""
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise failing(error) from error
    if len(statements) != 1:
        raise UsageError(f"one statement is answered at a time, not {len(statements)}")
    if not _reads_only(statements[0]):
        raise UsageError(f"{statements[0].type.name} is not a question", hint=_HINT)


def _reads_only(statement: duckdb.Statement) -> bool:
    kind = statement.type.name
    if kind == "EXPLAIN":
        # EXPLAIN ANALYZE runs what it explains.
        return _is_select(_EXPLAIN.sub("", statement.query, count=1))
    if kind == "MULTI":
        # A PIVOT is several statements, and so is a COPY or CREATE of one.
        return _PIVOT.match(statement.query) is not None
    return kind == "SELECT"


def _is_select(query: str) -> bool:
    try:
        return [statement.type.name for statement in duckdb.extract_statements(query)] == ["SELECT"]
    except duckdb.Error:
        return False


def seal(connection: duckdb.DuckDBPyConnection, directories: Iterable[Path]) -> None:
    """For good: only files below these directories are opened, no extension is loaded, no setting changes.

    Memory still spills to the connection's own directory.
    """
    listed = ", ".join("'" + f"{path.resolve()}/".replace("'", "''") + "'" for path in directories)
    connection.execute(f"SET allowed_directories = [{listed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def failing(error: duckdb.Error) -> UsageError:
    """What is said of a query that DuckDB refuses, or stops in the middle of."""
    hint = "a query sees the run's tables and no other files" if isinstance(error, duckdb.PermissionException) else None
    return UsageError(f"the query fails: {error}", hint=hint)
