"""A table on its way to a page, packed small."""

from __future__ import annotations

import base64

import numpy as np

from paceline.analysis.table import Numbers, Source, Table, Texts, query

__all__ = ["Numbers", "Source", "Table", "Texts", "pack_numbers", "packed", "query"]

_LISTED = 24
"""Columns up to this length are written as plain JSON lists, which people can read."""

_KINDS: tuple[tuple[str, str, float, float], ...] = (
    ("u8", "<u1", 0, 2**8 - 1),
    ("u16", "<u2", 0, 2**16 - 1),
    ("i32", "<i4", -(2**31), 2**31 - 1),
)


def packed(table: Table) -> dict[str, object]:
    """As JSON: lists, base64 of little-endian typed arrays, and dictionaries for texts that repeat."""
    columns: dict[str, object] = {name: pack_numbers(column) for name, column in table.numbers.items()}
    return columns | {name: _pack_texts(column) for name, column in table.texts.items()}


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
