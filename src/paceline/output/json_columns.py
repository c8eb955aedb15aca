"""Tables as JSON columns: plain lists while they are short, base64 of typed arrays when they are long."""

from __future__ import annotations

import base64

import msgspec
import numpy as np

from paceline.metrics.table import Numbers, Table, Texts

_LISTED = 24
"""Columns up to this length are written as plain JSON lists, which people can read."""


class PackedNumbers(msgspec.Struct, frozen=True, tag_field="kind"):
    """Little-endian numbers, base64; NaN = unknown."""

    base64: str


class PackedU8(PackedNumbers, frozen=True, tag="u8"):
    """Unsigned 8-bit integers."""


class PackedU16(PackedNumbers, frozen=True, tag="u16"):
    """Unsigned 16-bit integers."""


class PackedI32(PackedNumbers, frozen=True, tag="i32"):
    """Signed 32-bit integers."""


class PackedF32(PackedNumbers, frozen=True, tag="f32"):
    """32-bit floating-point numbers."""


NumberColumn = list[int | float | None] | PackedU8 | PackedU16 | PackedI32 | PackedF32


class PackedTexts(msgspec.Struct, frozen=True, tag_field="kind", tag="texts"):
    """Row i is texts[codes[i]]."""

    texts: tuple[str | None, ...]
    codes: NumberColumn


JsonColumn = list[int | float | str | None] | PackedU8 | PackedU16 | PackedI32 | PackedF32 | PackedTexts
JsonTable = dict[str, JsonColumn]
"""Column by name, all of one length."""

_KINDS: tuple[tuple[type[PackedU8 | PackedU16 | PackedI32], str, float, float], ...] = (
    (PackedU8, "<u1", 0, 2**8 - 1),
    (PackedU16, "<u2", 0, 2**16 - 1),
    (PackedI32, "<i4", -(2**31), 2**31 - 1),
)


def pack_table(table: Table) -> JsonTable:
    columns: JsonTable = {}
    for name, numbers in table.numbers.items():
        columns[name] = pack_numbers(numbers)  # type: ignore[assignment]  # a list of numbers is a list of cells
    for name, texts in table.texts.items():
        columns[name] = _pack_texts(texts)
    return columns


def pack_numbers(column: Numbers) -> NumberColumn:
    if len(column) <= _LISTED:
        return [None if np.isnan(value) else _plain(float(value)) for value in column]
    kind, dtype = _smallest(column)
    return kind(base64.b64encode(column.astype(dtype).tobytes()).decode("ascii"))


def _pack_texts(column: Texts) -> list[int | float | str | None] | PackedTexts:
    if len(column) <= _LISTED:
        return list(column)
    distinct = sorted({text for text in column if text is not None})
    codes = {text: float(code) for code, text in enumerate(distinct)} | {None: float(len(distinct))}
    return PackedTexts((*distinct, None), pack_numbers(np.array([codes[text] for text in column])))


def _smallest(column: Numbers) -> tuple[type[PackedU8 | PackedU16 | PackedI32 | PackedF32], str]:
    """The narrowest type that keeps whole numbers whole; fractions keep seven digits."""
    whole = not np.isnan(column).any() and bool((column == np.floor(column)).all())
    low, high = (column.min(), column.max()) if whole else (0.0, 0.0)
    for kind, dtype, least, most in _KINDS:
        if whole and least <= low and high <= most:
            return kind, dtype
    return PackedF32, "<f4"


def _plain(value: float) -> float | int:
    return int(value) if value.is_integer() else float(f"{value:.7g}")
