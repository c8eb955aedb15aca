"""The CSV files MindSpore wrote for MindInsight: columns by name, whole rows, numbers in our units."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path

from paceline.errors import FormatError
from paceline.formats.reader import Sink

MAX_BYTES = 1 << 30
"""No such file of one rank is larger; what claims to be is refused before it is read."""

csv.field_size_limit(1 << 28)
# One cell of hccl_raw holds every operator of a step as JSON: far more than the module's 128 KiB default.


def read_text(path: Path) -> str:
    """A whole small file as text; empty, oversized and non-UTF-8 files are refused with the reason."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise FormatError(f"has {size:,} bytes, far more than such a file can have; refused", file=path)
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FormatError("is not UTF-8 text; skipped", file=path, line=line) from error
    if not text.strip():
        raise FormatError("is empty", file=path)
    return text


def table(path: Path, sink: Sink) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Column names and (line, cells) of every whole row; a row that is cut off is left out and said."""
    reader = csv.reader(io.StringIO(read_text(path)))
    try:
        header = [name.strip() for name in next(reader)]
    except csv.Error as error:
        raise FormatError(f"is not a CSV file ({error})", file=path, line=1) from error
    return header, _whole_rows(reader, len(header), path, sink)


def rows(path: Path, sink: Sink) -> Iterator[tuple[int, dict[str, str]]]:
    """The same as dictionaries."""
    header, lines = table(path, sink)
    return ((line, dict(zip(header, cells, strict=False))) for line, cells in lines)


def _whole_rows(reader: Iterator[list[str]], width: int, path: Path, sink: Sink) -> Iterator[tuple[int, list[str]]]:
    line = 1
    try:
        for cells in reader:
            line = getattr(reader, "line_num", line + 1)
            if len(cells) >= width:
                yield line, cells
            elif cells:
                sink.warn(f"row with {len(cells)} of {width} columns left out", file=path, line=line)
    except csv.Error as error:
        raise FormatError(f"is not a CSV file ({error})", file=path, line=line + 1) from error


def number(text: str | None) -> float | None:
    """A finite float, or None for "-", "" and whatever else is no number.

    >>> number(" 0.5"), number("-"), number("nan")
    (0.5, None, None)
    """
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None


def scaled(text: str | None, unit: float) -> int | None:
    """text · unit, rounded to a whole number that fits a table's BIGINT.

    >>> scaled("0.00322", 1e6), scaled("1e300", 1e6)
    (3220, None)
    """
    value = number(text)
    return whole(value * unit) if value is not None else None


def whole(value: float) -> int | None:
    """The nearest integer, None when it would not fit 64 bits."""
    return round(value) if abs(value) < 2**63 else None
