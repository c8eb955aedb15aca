"""Cache of what is derived from the collectives of a store: clock offsets, inferred groups and stages.

store/derived/{clock,inferred,kinds,stages}-KEY.parquet      KEY: hash of the stored files they are derived from
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import duckdb

VERSION = 5
"""Raise it when results of run/tables/derivation.py change."""
NAMES = ("clock", "inferred", "kinds", "stages")


class DerivedCache:
    """Tables derived from one state of the stored tables; `scans` are the SELECTs that read them."""

    def __init__(self, store: Path, scans: Sequence[str | None]) -> None:
        self._directory = store / "derived"
        self._key = hashlib.sha256(f"{VERSION} {scans}".encode()).hexdigest()[:16]

    def load(self, connection: duckdb.DuckDBPyConnection) -> bool:
        """Create the tables from their files; False if a file is missing or unreadable."""
        if not all(self._file(name).is_file() for name in NAMES):
            return False
        try:
            for name in NAMES:
                connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM read_parquet(?)", [str(self._file(name))])
        except duckdb.Error:
            return False  # damaged from outside: it is derived and written again
        return True

    def save(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Write the tables atomically. A store without write permission is not an error: it is derived again next time."""
        with suppress(OSError, duckdb.IOException):
            self._directory.mkdir(exist_ok=True)
            outdated = [path for path in self._directory.glob("*.parquet") if self._key not in path.name]
            for name in NAMES:
                temporary = self._directory / f".{name}.{uuid.uuid4().hex}.tmp"
                connection.table(name).write_parquet(str(temporary))
                os.replace(temporary, self._file(name))
            for path in outdated:
                path.unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}-{self._key}.parquet"
