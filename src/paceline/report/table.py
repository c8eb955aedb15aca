"""A table on its way to a page: named columns of equal length, packed small."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import duckdb
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Texts = Sequence[str | None]

_LISTED = 24
"""Columns up to this length are written as plain JSON lists, which people can read."""

_KINDS: tuple[tuple[str, str, float, float], ...] = (
    ("u8", "<u1", 0, 2**8 - 1),
    ("u16", "<u2", 0, 2**16 - 1),
    ("i32", "<i4", -(2**31), 2**31 - 1),
)


class Source(Protocol):
    """Where tables are asked: a Run, or a copy of its tables that answers faster."""

    def sql(self, query: str, /) -> duckdb.DuckDBPyRelation: ...


@dataclass(frozen=True)
class Table:
    """Numbers are float64 with NaN for unknown; texts are lists with None for unknown."""

    numbers: Mapping[str, Numbers]
    texts: Mapping[str, Texts]

    @property
    def length(self) -> int:
        return next((len(column) for column in (*self.numbers.values(), *self.texts.values())), 0)

    def map_texts(self, change: Callable[[str], str]) -> Table:
        texts = {
            name: [None if text is None else change(text) for text in column] for name, column in self.texts.items()
        }
        return Table(self.numbers, texts)

    def packed(self) -> dict[str, object]:
        """As JSON: lists, base64 of little-endian typed arrays, and dictionaries for texts that repeat."""
        columns: dict[str, object] = {name: pack_numbers(column) for name, column in self.numbers.items()}
        return columns | {name: _pack_texts(column) for name, column in self.texts.items()}


def query(run: Source, select: str) -> Table:
    """The result of one SELECT as columns."""
    numbers: dict[str, Numbers] = {}
    texts: dict[str, Texts] = {}
    for name, values in run.sql(select).fetchnumpy().items():
        if values.dtype == object:
            unknown = np.ma.getmaskarray(np.ma.asarray(values))
            texts[name] = [None if skip else str(value) for value, skip in zip(values, unknown, strict=True)]
        else:
            numbers[name] = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
    return Table(numbers, texts)


def pack_numbers(column: Numbers) -> object:
    if len(column) <= _LISTED:
        return [None if np.isnan(value) else _plain(float(value)) for value in column]
    kind, dtype = _smallest(column)
    return {"kind": kind, "base64": base64.b64encode(column.astype(dtype).tobytes()).decode("ascii")}


def _pack_texts(column: Texts) -> object:
    distinct = sorted({text for text in column if text is not None})
    if len(column) <= _LISTED:
        return list(column)
    codes = {text: float(code) for code, text in enumerate(distinct)} | {None: float(len(distinct))}
    packed = pack_numbers(np.array([codes[text] for text in column]))
    return {"texts": [*distinct, None], "codes": packed}


def _smallest(column: Numbers) -> tuple[str, str]:
    """The narrowest type that keeps whole numbers whole; fractions keep seven digits."""
    whole = not np.isnan(column).any() and bool((column == np.floor(column)).all())
    low, high = (column.min(), column.max()) if whole else (0.0, 0.0)
    for kind, dtype, least, most in _KINDS:
        if whole and least <= low and high <= most:
            return kind, dtype
    return "f32", "<f4"


def _plain(value: float) -> float | int:
    return int(value) if value.is_integer() else float(f"{value:.7g}")
