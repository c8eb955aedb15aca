"""Reading of CSV files: column names, complete rows as text, or a DuckDB scan for files with millions of rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.base import Sink

MAX_BYTES = 1 << 30
"""Larger files are refused before they are read: no such file of one rank is this large."""

csv.field_size_limit(1 << 28)
# One cell of hccl_raw holds all operators of a step as JSON: far more than the csv module's limit of 128 KiB.


def read_text(path: Path) -> str:
    """The text of a small file; raises if it is empty, too large or not UTF-8."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise FormatError(message("too_large_refused", size=size), file=path)
    text = _decoded(path.read_bytes(), path)
    if not text or text.isspace():
        raise FormatError(message("empty"), file=path)
    return text


def csv_header(path: Path) -> list[str]:
    """The column names; raises if they are not unique, because DuckDB needs unique names."""
    with path.open("rb") as file:
        line = file.readline(1 << 20)
    if not line.strip():
        raise FormatError(message("empty"), file=path)
    names = next(csv.reader(io.StringIO(_decoded(line, path))))
    if len(set(names)) != len(names):
        raise FormatError(message("column_twice"), file=path)
    return [name.strip() for name in names]


def csv_scan(header: list[str]) -> str:
    """A DuckDB table function that reads a CSV file (its path is the one parameter) as text, cut-off rows included."""
    cells = ", ".join("'" + name.replace("'", "''") + "': 'VARCHAR'" for name in header)
    return (
        f"read_csv(?, columns = {{{cells}}}, header = true, auto_detect = false, delim = ',', quote = '\"', "
        "escape = '\"', null_padding = true, strict_mode = false, max_line_size = 16777216)"
    )


def csv_rows(path: Path, needed: Iterable[str]) -> Iterator[dict[str, str]]:
    """Rows as dictionaries; incomplete rows are left out, a missing column is an error."""
    reader = csv.reader(io.StringIO(read_text(path)))
    header = [name.strip() for name in next(reader)]
    if missing := [name for name in needed if name not in header]:
        raise FormatError(message("lacks_column", name=repr(missing[0])), file=path, line=1)
    for row in reader:
        if len(row) == len(header):
            yield dict(zip(header, row, strict=True))


def csv_table(path: Path, sink: Sink) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Column names, and (line, cells) of every complete row; incomplete rows are left out with a warning."""
    reader = csv.reader(io.StringIO(read_text(path)))
    try:
        header = [name.strip() for name in next(reader)]
    except csv.Error as error:
        raise FormatError(message("not_csv", error=error), file=path, line=1) from error
    return header, _complete_rows(reader, len(header), path, sink)


def csv_lines(path: Path, sink: Sink) -> Iterator[tuple[int, dict[str, str]]]:
    """As `csv_table`, with each row as a dictionary."""
    header, lines = csv_table(path, sink)
    return ((line, dict(zip(header, cells, strict=False))) for line, cells in lines)


def _complete_rows(reader: Iterator[list[str]], width: int, path: Path, sink: Sink) -> Iterator[tuple[int, list[str]]]:
    line = 1
    try:
        for cells in reader:
            line = getattr(reader, "line_num", line + 1)
            if len(cells) >= width:
                yield line, cells
            elif cells:
                sink.warn(message("row_columns", n=len(cells), width=width), file=path, line=line)
    except csv.Error as error:
        raise FormatError(message("not_csv", error=error), file=path, line=line + 1) from error


def _decoded(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FormatError(message("not_utf8"), file=path, line=line) from error
