"""Tables that the server sorts, filters and pages, and exports as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import duckdb

from paceline.core.text_encoding import spreadsheet_cell
from paceline.web.problems import BadRequestError

MOST_ROWS = 500
MOST_EXPORTED = 1_000_000
_CHUNK = 10_000

Filters = Mapping[str, int | str | list[int]]
"""A filter by ranks is a list of them."""
ColumnKind = Literal["text", "rank", "count", "ms", "bytes", "memory", "rate", "fraction", "number"]


@dataclass(frozen=True)
class Column:
    """`kind` tells the page how to show it; rates are GB/s, memory is bytes shown in GiB."""

    name: str
    kind: ColumnKind = "text"


@dataclass(frozen=True)
class PagedTable:
    """A SELECT whose $parameters are filters; a filter that is not given is null and matches any row."""

    name: str
    about: str
    columns: tuple[Column, ...]
    select: Callable[[Filters], str]
    filters: tuple[str, ...]
    sort: str
    needs: tuple[str, ...] = ()
    """Filters that must be given."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True)
class TablePage:
    """The rows of one page and the number of rows of the whole table."""

    total: int
    rows: list[tuple[Any, ...]]


def read_page(
    cursor: duckdb.DuckDBPyConnection, table: PagedTable, filters: Filters, *, sort: str, offset: int, limit: int
) -> TablePage:
    query, values = _query(table, filters)
    order = _order(table, sort)
    rows = cursor.execute(
        f"SELECT {_listed(table)}, count(*) OVER () FROM ({query}) ORDER BY {order} LIMIT {int(limit)} OFFSET {int(offset)}",
        values,
    ).fetchall()
    if rows:
        return TablePage(int(rows[0][-1]), [row[:-1] for row in rows])
    counted = cursor.execute(f"SELECT count(*) FROM ({query})", values).fetchall()[0]
    return TablePage(int(counted[0]), [])


def csv_lines(cursor: duckdb.DuckDBPyConnection, table: PagedTable, filters: Filters, sort: str) -> Iterator[str]:
    """The whole table in chunks; column names carry their unit."""
    query, values = _query(table, filters)
    cursor.execute(
        f"SELECT {_listed(table)} FROM ({query}) ORDER BY {_order(table, sort)} LIMIT {MOST_EXPORTED}", values
    )
    yield _csv([[_titled(column) for column in table.columns]])
    while rows := cursor.fetchmany(_CHUNK):
        yield _csv([[spreadsheet_cell(value) for value in row] for row in rows])


def _query(table: PagedTable, filters: Filters) -> tuple[str, dict[str, int | str | list[int] | None]]:
    unknown = set(filters) - set(table.filters)
    if unknown:
        possible = ", ".join(table.filters) or "–"
        raise BadRequestError("unknown_filter", table=table.name, filters=", ".join(sorted(unknown)), possible=possible)
    missing = set(table.needs) - set(filters)
    if missing:
        raise BadRequestError("missing_filter", table=table.name, filters=", ".join(sorted(missing)))
    query = table.select(filters)
    return query, {name: filters.get(name) for name in table.filters if f"${name}" in query}


def _order(table: PagedTable, sort: str) -> str:
    """ "-time" = by time, largest first; unknown values come last, and equal rows keep one order."""
    name = sort.removeprefix("-")
    if name not in table.names:
        raise BadRequestError("unknown_column", table=table.name, column=name, columns=", ".join(table.names))
    direction = "DESC" if sort.startswith("-") else "ASC"
    others = ", ".join(f'"{other}"' for other in table.names[:3] if other != name)
    return f'"{name}" {direction} NULLS LAST' + (f", {others}" if others else "")


def _listed(table: PagedTable) -> str:
    return ", ".join(f'"{name}"' for name in table.names)


_UNITS = {"ms": "ms", "bytes": "B", "memory": "B", "rate": "GB/s", "fraction": "fraction"}


def _titled(column: Column) -> str:
    unit = _UNITS.get(column.kind)
    return f"{column.name} ({unit})" if unit else column.name


def _csv(rows: list[list[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()
