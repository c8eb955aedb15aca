"""Tables of a run made by hand, for tests of analyses whose answers are worked out on paper."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import count, groupby
from typing import Any

import duckdb

from paceline.core.schema import TABLES

_CREATE = ";".join(
    f"CREATE TABLE {table.name} ({', '.join(f'{chr(34)}{column.name}{chr(34)} {column.type}' for column in table.columns)})"
    for table in TABLES.values()
)


_DATABASE = duckdb.connect()
"""One for all runs, each in a schema of its own: to open a database takes several times as long as to make its tables."""
_SCHEMAS = count()


class FakeRun:
    """Every table of the vocabulary, empty but for the rows given: `FakeRun(steps=[{"rank": 0, …}])`."""

    def __init__(self, **tables: list[dict[str, Any]]) -> None:
        self.connection = _DATABASE.cursor()
        schema = f"run{next(_SCHEMAS)}"
        self.connection.execute(f"CREATE SCHEMA {schema}; SET schema = '{schema}'")
        self.formats = ["made by hand"]
        self.derived: dict[Hashable, object] = {}
        self.gaps: list[object] = []
        self.connection.execute(_CREATE)
        for name, rows in tables.items():
            for columns, alike in groupby(rows, key=tuple):
                values = [value for row in alike for value in row.values()]
                marks = f"({', '.join('?' for _ in columns)})"
                names = ", ".join(f'"{column}"' for column in columns)
                everything = ", ".join([marks] * (len(values) // len(columns)))
                self.connection.execute(f"INSERT INTO {name} ({names}) VALUES {everything}", values)

    def load(self, names: Iterable[str]) -> None:
        """Everything is there."""

    def sql(self, query: str, params: Mapping[str, object] | None = None) -> duckdb.DuckDBPyRelation:
        return self.connection.sql(query, params=params)
