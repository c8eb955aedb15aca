"""Tables of a run made by hand, for tests of analyses whose answers are worked out on paper."""

from __future__ import annotations

from typing import Any

import duckdb

from paceline.tables import TABLES


class HandMade:
    """Every table of the vocabulary, empty but for the rows given: `HandMade(steps=[{"rank": 0, …}])`."""

    def __init__(self, **tables: list[dict[str, Any]]) -> None:
        self._connection = duckdb.connect()
        for table in TABLES.values():
            columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
            self._connection.execute(f"CREATE TABLE {table.name} ({columns})")
        for name, rows in tables.items():
            for row in rows:
                columns = ", ".join(f'"{column}"' for column in row)
                marks = ", ".join("?" for _ in row)
                self._connection.execute(f"INSERT INTO {name} ({columns}) VALUES ({marks})", list(row.values()))

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        return self._connection.sql(query)
