"""Columns of a SQLite result as NumPy arrays: the work per row is done by NumPy, not by Python.

A column of integers is an int64 array, masked where it is null. Any other column (text, mixed types) is an array of
objects; what is done with it is slower and gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.formats.units import scaled_decimal

Column = NDArray[Any]

_TABLE_SIZE = 1 << 20
"""Ids below this are looked up by position; larger ones in a dictionary."""
_CERTAIN = 2.0**45
"""A float product below this is wrong by less than 2 ** -7."""


def as_column(values: Sequence[Any]) -> Column:
    kinds = set(map(type, values))
    if kinds == {int}:
        return np.array(values, dtype=np.int64)
    if kinds and kinds <= {int, type(None)}:
        missing = np.fromiter((value is None for value in values), dtype=np.bool_, count=len(values))
        return np.ma.masked_array(np.array([value or 0 for value in values], dtype=np.int64), mask=missing)
    return objects(values)


def objects(values: Sequence[Any]) -> Column:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _same(text: str) -> str | None:
    return text


@dataclass(frozen=True)
class StringIds:
    """String id → text, for the ids that a section uses."""

    known: dict[Any, str] = field(default_factory=dict)
    keeps_text: bool = True
    """Whether text in place of an id stays what it is; otherwise it is unknown."""

    def of(self, ids: Column, change: Callable[[str], str | None] = _same) -> Column:
        """Text of each id, changed; an unknown id is None."""
        if ids.dtype == object or not self._positional:
            known, keeps = self.known, self.keeps_text
            texts = [value if keeps and isinstance(value, str) else known.get(value) for value in ids.tolist()]
            return objects([None if text is None else change(text) for text in texts])
        table = np.full(max(self.known, default=-1) + 3, None, dtype=object)
        for key, text in self.known.items():
            table[key + 1] = change(text)
        positions: Column = np.clip(np.ma.filled(ids, -1), -1, len(table) - 2) + 1
        return table[positions]

    @cached_property
    def _positional(self) -> bool:
        return all(type(key) is int and 0 <= key < _TABLE_SIZE for key in self.known)


def durations(starts: Column, ends: Column) -> Column:
    """end - start; null if the end is missing or before the start."""
    unknown = np.ma.getmaskarray(starts) | np.ma.getmaskarray(ends)
    first, last = np.ma.getdata(starts), np.ma.getdata(ends)
    return np.ma.masked_array(last - first, mask=unknown | (last < first))


def labelled(prefix: str, numbers: Column) -> Column:
    """The prefix followed by each number; few numbers are different."""
    different, positions = np.unique(np.ma.getdata(numbers), return_inverse=True)
    labels = objects([f"{prefix}{number}" for number in different.tolist()])[positions]
    labels[np.ma.getmaskarray(numbers)] = f"{prefix}None"
    return labels


def otherwise(texts: Column, others: Column | str) -> Column:
    """The first text, or the second where the first is empty or unknown."""
    return np.where(texts.astype(np.bool_), texts, others)


def scaled_column(values: Sequence[Any], unit: int) -> Column:
    """scaled_decimal of every value; a float product decides where it cannot round to another integer."""
    if not set(map(type, values)) <= {int, float}:
        return as_column([scaled_decimal(value, unit) for value in values])
    products = np.array(values, dtype=np.float64) * unit
    doubtful = ~(np.abs(products) < _CERTAIN) | (np.abs(np.abs(products - np.floor(products)) - 0.5) < 1 / 64)
    exact = np.flatnonzero(doubtful)
    products[exact] = 0
    column = np.ma.masked_array(np.rint(products).astype(np.int64), mask=False)
    for index in exact.tolist():
        scaled = scaled_decimal(values[index], unit)
        column[index] = np.ma.masked if scaled is None else scaled
    return column if column.mask.any() else column.data
