"""Rows for people (aligned, in ms and MB) and for programs (CSV, JSON, Parquet, in the tables' own units)."""

from __future__ import annotations

import csv
import io
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import msgspec
from rich.console import Console
from rich.table import Table

from paceline.errors import UsageError
from paceline.tables import TABLES

_MOMENTS = {"start", "end", "time"}
_CHUNK = 10_000


@dataclass(frozen=True)
class Rows:
    """What to write: a relation, the connection it lives on, and the table it is (None for a query)."""

    connection: duckdb.DuckDBPyConnection
    relation: duckdb.DuckDBPyRelation
    table: str | None = None

    def chunks(self) -> Iterator[list[tuple[Any, ...]]]:
        """Rows piece by piece; relations themselves only fetch everything."""
        cursor = self.connection.execute(self.relation.sql_query())
        while rows := cursor.fetchmany(_CHUNK):
            yield rows

    def count(self) -> int:
        return int(self.relation.count("*").fetchall()[0][0])


def write_rows(rows: Rows, *, format: str, output: Path | None, limit: int) -> None:
    """Write rows; a file appears whole or not at all."""
    if format == "pretty" and output is None:
        _print_pretty(rows, limit)
    elif format == "parquet" and output is None:
        raise UsageError("parquet is not for the terminal", hint="add --output FILE.parquet")
    elif output is None:
        _stream(rows, format, sys.stdout.buffer)
    else:
        _write_file(rows, format, output)


def _write_file(rows: Rows, format: str, output: Path) -> None:
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent}: no such directory")
    descriptor, name = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
    temporary = Path(name)
    try:
        if format == "parquet":
            os.close(descriptor)
            rows.relation.write_parquet(str(temporary), compression="zstd")
        else:
            with os.fdopen(descriptor, "wb") as out:
                _stream(rows, "csv" if format == "pretty" else format, out)
        temporary.chmod(0o644)
        os.replace(temporary, output)
    finally:
        temporary.unlink(missing_ok=True)


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
        writer.writerows(chunk)
    text.detach()


def _print_pretty(rows: Rows, limit: int) -> None:
    """Columns without a single value are left out; times in ms, moments counted from the first one shown."""
    relation, table = rows.relation, rows.table
    shown = relation.limit(limit).fetchall() if limit else relation.fetchall()
    names = relation.columns
    units = [_unit(table, name) for name in names]
    origin = min(
        (row[i] for row in shown for i, name in enumerate(names) if _is_moment(name, units[i], row[i])), default=0
    )
    filled = [i for i in range(len(names)) if any(row[i] is not None for row in shown)] or list(range(len(names)))
    grid = Table(box=None, pad_edge=False, header_style="bold", caption_justify="left")
    for i in filled:
        right = any(isinstance(row[i], (int, float)) for row in shown)
        grid.add_column(
            _header(names[i], units[i]), justify="right" if right else "left", no_wrap=True, overflow="ellipsis"
        )
    for row in shown:
        grid.add_row(*(_cell(row[i], names[i], units[i], origin) for i in filled))
    console = Console(width=None if sys.stdout.isatty() else 240, highlight=False)
    console.print(grid)
    total = rows.count() if limit and len(shown) == limit else len(shown)
    hidden = [names[i] for i in range(len(names)) if i not in filled]
    notes = [f"{len(shown):,} of {total:,} rows" + ("" if len(shown) == total else " (--limit 0 for all)")]
    if hidden:
        notes.append(f"unknown in this recording: {', '.join(hidden)}")
    console.print(" · ".join(notes), style="dim", soft_wrap=True)


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
    return str(value).replace("[", "\\[") if isinstance(value, str) else str(value)


def format_rows(names: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int]) -> Table:
    """A plain aligned grid of ready-made texts."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(names):
        grid.add_column(name, justify="right" if i in right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    return grid
