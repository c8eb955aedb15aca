"""Clocks and inferred groups, worked out once for the collectives as they are stored, and kept beside them.

store/worked-out/clock-KEY.parquet, inferred-KEY.parquet      KEY: of the stored files they follow from
"""

from __future__ import annotations

import hashlib
import os
import uuid
from contextlib import suppress
from pathlib import Path

import duckdb

VERSION = 3
"""Raise it when run/clock.py or run/groups.py find something else than before."""
NAMES = ("clock", "inferred")


class WorkedOut:
    """What follows from one state of the collectives; `collectives` is the SELECT that reads them."""

    def __init__(self, store: Path, collectives: str | None) -> None:
        self._directory = store / "worked-out"
        self._key = hashlib.sha256(f"{VERSION} {collectives}".encode()).hexdigest()[:16]

    def recall(self, connection: duckdb.DuckDBPyConnection) -> bool:
        """Create the tables from what was kept; False when there is nothing, or something unreadable."""
        if not all(self._file(name).is_file() for name in NAMES):
            return False
        try:
            for name in NAMES:
                connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM read_parquet(?)", [str(self._file(name))])
        except duckdb.Error:
            return False  # damaged from outside: working it out again mends it
        return True

    def keep(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Beside, renamed; a store nobody may write to is simply worked out again next time."""
        with suppress(OSError, duckdb.IOException):
            self._directory.mkdir(exist_ok=True)
            old = [path for path in self._directory.glob("*.parquet") if self._key not in path.name]
            for name in NAMES:
                beside = self._directory / f".{name}.{uuid.uuid4().hex}.tmp"
                quoted = str(beside).replace("'", "''")
                connection.execute(f"COPY {name} TO '{quoted}' (FORMAT parquet)")
                os.replace(beside, self._file(name))
            for path in old:
                path.unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}-{self._key}.parquet"
