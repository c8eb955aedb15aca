"""Write rows as an aligned table (ms, MB), or as CSV, JSON or Parquet in the units of the tables."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import msgspec
from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from paceline.core.atomic_write import atomic_write_path
from paceline.core.errors import PacelineError, UsageError
from paceline.core.schema import TABLES
from paceline.core.text_encoding import spreadsheet_cell
from paceline.output.console import Console

_MOMENTS = {"start", "end", "time"}
_CHUNK = 10_000
_SHORTEST = 8  # characters of a text column that is cut


@dataclass(frozen=True)
class Rows:
    """What to write: a relation, its connection, and the name of its table (None for a query)."""

    connection: duckdb.DuckDBPyConnection
    relation: duckdb.DuckDBPyRelation
    table: str | None = None

    def chunks(self) -> Iterator[list[tuple[Any, ...]]]:
        """Rows in chunks; a relation itself can only fetch all of them."""
        cursor = self.connection.execute(self.relation.sql_query())
        while rows := cursor.fetchmany(_CHUNK):
            yield rows

    def count(self) -> int:
        return int(self.relation.count("*").fetchall()[0][0])


def write_rows(rows: Rows, *, format: str, output: Path | None, limit: int) -> None:
    """Write rows to stdout, or atomically to a file."""
    if format == "pretty" and output is None:
        _print_pretty(rows, limit)
    elif format == "parquet" and output is None:
        raise UsageError("--format parquet cannot be written to the terminal", hint="add --output FILE.parquet")
    elif output is None:
        _stream(rows, format, sys.stdout.buffer)
    else:
        _write_file(rows, format, output)


def _write_file(rows: Rows, format: str, output: Path) -> None:
    with atomic_write_path(output) as path:
        if format == "parquet":
            _write_parquet(rows, path)
        else:
            with path.open("wb") as out:
                _stream(rows, "csv" if format == "pretty" else format, out)


def _write_parquet(rows: Rows, path: Path) -> None:
    try:
        rows.relation.write_parquet(str(path), compression="zstd")
    except duckdb.IOException as error:
        raise PacelineError(f"{path}: could not be written: {error}") from error


def _stream(rows: Rows, format: str, out: BinaryIO) -> None:
    if format == "json":
        _stream_json(rows, out)
    else:
        _stream_csv(rows, out)
    out.flush()


def _stream_json(rows: Rows, out: BinaryIO) -> None:
    encoder, names = msgspec.json.Encoder(), rows.relation.columns
    separator = b"[\n"
    for chunk in rows.chunks():
        for row in chunk:
            out.write(separator + encoder.encode(dict(zip(names, row, strict=True))))
            separator = b",\n"
    out.write(b"[]\n" if separator == b"[\n" else b"\n]\n")


def _stream_csv(rows: Rows, out: BinaryIO) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows.relation.columns)
    for chunk in rows.chunks():
        writer.writerows([map(spreadsheet_cell, row) for row in chunk])
    text.detach()


def _print_pretty(rows: Rows, limit: int) -> None:
    """Columns without any value are left out; times in ms, timestamps relative to the first one shown."""
    relation, names = rows.relation, rows.relation.columns
    shown = relation.limit(limit).fetchall() if limit else relation.fetchall()
    filled = [i for i in range(len(names)) if any(row[i] is not None for row in shown)] or list(range(len(names)))
    columns = _columns(shown, [(i, names[i], _unit(rows.table, names[i])) for i in filled])
    width = Console().width if sys.stdout.isatty() else 240
    console = Console(width=max(width, _fit(columns, width)), highlight=False, emoji=False)
    console.print(_grid(columns), soft_wrap=True)
    total = rows.count() if limit and len(shown) == limit else len(shown)
    hidden = [name for i, name in enumerate(names) if i not in filled]
    notes = [f"{len(shown):,} of {total:,} rows" + ("" if len(shown) == total else " (--limit 0 for all)")]
    if hidden:
        notes.append(f"unknown in this recording: {', '.join(hidden)}")
    console.print(" · ".join(notes), style="dim", soft_wrap=True)


@dataclass
class _Column:
    header: str
    cells: list[str]
    is_number: bool
    width: int


def _columns(shown: list[tuple[Any, ...]], chosen: list[tuple[int, str, str]]) -> list[_Column]:
    """The columns with these indexes, names and units, as texts."""
    moments = (row[i] for row in shown for i, name, unit in chosen if _is_moment(name, unit, row[i]))
    origin = min(moments, default=0)
    columns = []
    for i, name, unit in chosen:
        header, cells = _header(name, unit), [_cell(row[i], name, unit, origin) for row in shown]
        is_number = any(isinstance(row[i], (int, float)) for row in shown)
        columns.append(_Column(header, cells, is_number, max(map(cell_len, [*header.split("\n"), *cells]))))
    return columns


def _fit(columns: list[_Column], width: int) -> int:
    """Shorten texts, the longest first, until the table fits; numbers are never shortened. Returns the width."""
    texts = [column for column in columns if not column.is_number]
    while sum(column.width + 2 for column in columns) - 2 > width:
        longest = max(texts, key=lambda column: column.width, default=None)
        if longest is None or longest.width <= _SHORTEST:
            break
        longest.width -= 1
    return sum(column.width + 2 for column in columns) - 2


def _grid(columns: list[_Column]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        justify: JustifyMethod = "right" if column.is_number else "left"
        grid.add_column(column.header, justify=justify, no_wrap=True, overflow="ellipsis", width=column.width)
    for row in zip(*(column.cells for column in columns), strict=True):
        grid.add_row(*map(Text, row))
    return grid


def _unit(table: str | None, name: str) -> str:
    if table == "links":
        return {"bytes": "B", "duration": "ns", "wait": "ns", "bandwidth": "GB/s"}.get(name, "")
    if table is None:
        return ""
    return next((column.unit for column in TABLES[table].columns if column.name == name), "")


def _is_moment(name: str, unit: str, value: object) -> bool:
    return unit == "ns" and name in _MOMENTS and value is not None


def _header(name: str, unit: str) -> str:
    shown = {"ns": "ms", "B": "MB"}.get(unit, unit)
    return f"{name}\n{shown}" if shown else f"{name}\n"


def _cell(value: Any, name: str, unit: str, origin: int) -> str:
    if value is None:
        return "–"
    if unit == "ns":
        return f"{(value - origin if name in _MOMENTS else value) / 1e6:,.3f}"
    if unit == "B":
        return f"{value / 1e6:,.3f}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return str(value)


def format_rows(names: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int]) -> Table:
    """An aligned table of texts."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(names):
        grid.add_column(name, justify="right" if i in right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    return grid
