"""Columns of a SQLite result as NumPy arrays: the work per row is done by NumPy, not by Python.

A column of integers is an int64 array, masked where it is null. Any other column (text, mixed types) is an array of
objects; what is done with it is slower and gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.ascend_db.pages import PageError
from paceline.formats.units import scaled_decimal

Column = NDArray[Any]

_TABLE_SIZE = 1 << 20
"""Ids below this are looked up by position; larger ones in a dictionary."""
_LIMIT = 2.0**63
_CERTAIN = 2.0**45
"""A float product below this is wrong by less than 2 ** -7."""


def as_column(values: Sequence[Any]) -> Column:
    return as_integers(values) if values and set(map(type, values)) <= {int, type(None)} else objects(values)


def as_integers(values: Sequence[int | None]) -> Column:
    try:
        return np.array(values, dtype=np.int64)
    except TypeError:
        found = objects(values)
        missing = np.array([value is None for value in values])
        found[missing] = 0
        return np.ma.masked_array(found.astype(np.int64), mask=missing)


def unknown(length: int) -> Column:
    return np.ma.masked_array(np.zeros(length, dtype=np.int64), mask=True)


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
        table = self._table
        positions: Column = np.clip(np.ma.filled(ids, -1), -1, len(table) - 2) + 1
        if change is _same:
            return table[positions]
        changed = np.full(len(table), None, dtype=object)
        used = np.zeros(len(table), dtype=np.bool_)
        used[positions] = True
        for position in np.flatnonzero(used).tolist():
            text = table[position]
            changed[position] = None if text is None else change(text)
        return changed[positions]

    @cached_property
    def _table(self) -> Column:
        """Texts by 1 + id; the first and the last are None."""
        table = np.full(max(self.known, default=-1) + 3, None, dtype=object)
        table[np.fromiter(self.known, dtype=np.int64, count=len(self.known)) + 1] = objects(list(self.known.values()))
        return table

    @cached_property
    def _positional(self) -> bool:
        return all(type(key) is int and 0 <= key < _TABLE_SIZE for key in self.known)


@dataclass(frozen=True)
class KeyedRows:
    """Rows of a table that others are joined to by a number."""

    keys: Column
    """In ascending order."""
    columns: dict[str, Column]

    @classmethod
    def of(cls, keys: Column, columns: dict[str, Column]) -> KeyedRows:
        """A number that is unknown has no row; one that two rows have is a PageError."""
        known = np.flatnonzero(~np.ma.getmaskarray(keys))
        values = np.ma.getdata(keys)[known].astype(np.int64)
        if not (np.diff(values) > 0).all():
            order = np.argsort(values, kind="stable")
            known, values = known[order], values[order]
            if (np.diff(values) == 0).any():
                raise PageError("a row has several partners")
        if len(known) == len(keys) and (np.diff(known) > 0).all():
            return cls(values, columns)
        return cls(values, {name: column[known] for name, column in columns.items()})

    def joined(self, own: dict[str, Column], keys: Column, *, required: bool) -> dict[str, Column]:
        """These columns and their own, in the rows that have a partner or in all."""
        values, known = np.ma.getdata(keys), ~np.ma.getmaskarray(keys)
        if not len(self.keys):
            rows, found = np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.bool_)
        else:
            rows = self._rows(values)
            found = (self.keys[rows] == values) & known
        if required:
            rows, own = rows[found], {name: column[found] for name, column in own.items()}
            return own | {name: column[rows].astype(np.int64) for name, column in self.columns.items()}
        if not len(self.keys):
            return own | {name: unknown(len(values)) for name in self.columns}
        return own | {
            name: column[rows].astype(np.int64) if found.all() else _masked_where(~found, column[rows])
            for name, column in self.columns.items()
        }

    def _rows(self, values: Column) -> Column:
        """Where each number is or would be."""
        first, last, count = int(self.keys[0]), int(self.keys[-1]), len(self.keys)
        within: Column = np.clip(values, first, last)
        if last - first + 1 == count:  # without a gap
            return within - first
        return np.searchsorted(self.keys, within)


def _masked_where(missing: Column, values: Column) -> Column:
    return np.ma.masked_array(np.ma.getdata(values).astype(np.int64), mask=missing | np.ma.getmaskarray(values))


def durations(starts: Column, ends: Column) -> Column:
    """end - start; null if the end is missing or before the start."""
    missing = np.ma.getmaskarray(starts) | np.ma.getmaskarray(ends)
    first, last = np.ma.getdata(starts), np.ma.getdata(ends)
    difference = last - first  # negative although the end is later: more than 64 bits
    return np.ma.masked_array(difference, mask=missing | (last < first) | (difference < 0))


def labelled(prefix: str, numbers: Column) -> Column:
    """The prefix followed by each number; few numbers are different."""
    different, positions = _distinct(np.ma.getdata(numbers))
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
    with np.errstate(over="ignore", invalid="ignore"):
        products = np.array(values, dtype=np.float64) * unit
        doubtful = ~(np.abs(products) < _CERTAIN) | (np.abs(products - np.floor(products) - 0.5) < 1 / 64)
    exact = np.flatnonzero(doubtful)
    products[exact] = 0
    column = np.ma.masked_array(np.rint(products).astype(np.int64), mask=False)
    for index in exact.tolist():
        scaled = scaled_decimal(values[index], unit)
        column[index] = np.ma.masked if scaled is None else scaled
    return column if column.mask.any() else column.data


class CallSums(NamedTuple):
    """Calls of one kind; the times are of those whose duration is known."""

    calls: int
    time: int | None
    shortest: int | None
    longest: int | None


def sum_calls(summed: dict[tuple[Any, Any], CallSums], times: Column, layers: Column | None, names: Column) -> None:
    """Add calls to their sums by (layer, name)."""
    different, codes = _coded(names)
    kinds, kind_codes = ([None], np.zeros(len(names), dtype=np.int64)) if layers is None else _coded(layers)
    codes = kind_codes * len(different) + codes
    known = ~np.ma.getmaskarray(times)
    durations_known, codes_known = np.ma.getdata(times)[known], codes[known]
    size = len(different) * len(kinds)
    if np.any(np.bincount(codes_known, durations_known, minlength=size) >= _LIMIT):
        raise FormatError(message("durations_64"))
    counts, known_counts = np.bincount(codes, minlength=size), np.bincount(codes_known, minlength=size)
    totals = np.zeros(size, dtype=np.int64)
    shortest, longest = np.full(size, np.iinfo(np.int64).max), np.full(size, -1)
    np.add.at(totals, codes_known, durations_known)
    np.minimum.at(shortest, codes_known, durations_known)
    np.maximum.at(longest, codes_known, durations_known)
    for code in np.flatnonzero(counts).tolist():
        key = kinds[code // len(different)], different[code % len(different)]
        timed = bool(known_counts[code])
        found = CallSums(
            int(counts[code]),
            int(totals[code]) if timed else None,
            int(shortest[code]) if timed else None,
            int(longest[code]) if timed else None,
        )
        summed[key] = _added(summed[key], found) if key in summed else found


def _added(one: CallSums, other: CallSums) -> CallSums:
    if one.time is None or other.time is None:
        known = other if one.time is None else one
        return known._replace(calls=one.calls + other.calls)
    assert one.shortest is not None and other.shortest is not None
    assert one.longest is not None and other.longest is not None
    return CallSums(
        one.calls + other.calls,
        one.time + other.time,
        min(one.shortest, other.shortest),
        max(one.longest, other.longest),
    )


def _coded(column: Column) -> tuple[list[Any], Column]:
    """The different values, and which of them each value is."""
    if column.dtype != object and not np.ma.is_masked(column):
        different, codes = _distinct(np.ma.getdata(column))
        return different.tolist(), codes
    positions: dict[Any, int] = {}
    codes = np.array([positions.setdefault(value, len(positions)) for value in column.tolist()], dtype=np.int64)
    return list(positions), codes


def _distinct(numbers: Column) -> tuple[Column, Column]:
    """np.unique with the inverse; without sorting where the numbers lie close together, as ids and streams do."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if high - low >= _TABLE_SIZE:
        different, codes = np.unique(numbers, return_inverse=True)
        return different, codes
    offsets = numbers - low
    present = np.zeros(high - low + 1, dtype=np.bool_)
    present[offsets] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[offsets]
