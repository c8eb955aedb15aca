"""Whole numbers of a SQLite table, decoded from the file's pages by NumPy (https://www.sqlite.org/fileformat2.html).

SQLite hands out values one by one. What lies in a leaf page is regular: cells, each a record of a header (a type for every
column) and a body; here a column of all cells of many pages is decoded at once. What is anything else than whole numbers in
one page (text in a wanted column, fractions, overflow, damage) is a PageError: then SQLite reads, and its answer counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Column = NDArray[Any]

_LEAF, _INTERIOR = 0x0D, 0x05
_MARGIN: Final = 16
"""Zeros behind the pages, so that eight bytes can be read at each position."""
_PAGES_AT_ONCE: Final = 256
_DEEPEST: Final = 16
_LONGEST_VARINT: Final = 9
_FRACTION, _ZERO, _ONE, _RESERVED = 7, 8, 9, 10
_SIZES: Final = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((kind - 12) // 2 for kind in range(12, 128))])
"""Bytes of a value by its type; types from 12 are blobs and texts."""
_SHIFTS: Final = np.array([63, 56, 48, 40, 32, 16, 0, 0, 63, 63])
"""How far eight bytes from the value's first have to be shifted."""


class PageError(Exception):
    """These pages are not decoded here."""


@dataclass(frozen=True)
class StoredTable:
    """Where a table lies: its root page, its columns in the order of the records, and the one that is the row's number."""

    root: int
    columns: tuple[str, ...]
    rowid: str | None = None


@dataclass(frozen=True)
class PageFile:
    """An open database."""

    file: BinaryIO
    size: int
    """Of a page."""
    usable: int
    """Bytes of a page without what extensions reserve at its end."""
    count: int

    def columns(self, table: StoredTable, names: Sequence[str], *, rows: int) -> Iterator[tuple[int, list[Column]]]:
        """The number of the last row, and columns of whole numbers, masked where they are null.

        At least so many rows at a time, but for the last.
        """
        pending: list[list[Column]] = []
        leaves, last = self._leaves(table.root), 0
        for first in range(0, len(leaves), _PAGES_AT_ONCE):
            cells = _cells_of(self._read(leaves[first : first + _PAGES_AT_ONCE]), self)
            if not len(cells.rowids):
                continue
            pending.append(_columns_of(cells, table, names))
            last = int(cells.rowids[-1])
            if sum(len(columns[0]) for columns in pending) >= rows:
                yield last, joined(pending)
                pending = []
        if pending:
            yield last, joined(pending)

    def _leaves(self, root: int) -> Integers:
        """Numbers of the leaf pages below this page, in the order of the rows."""
        level = np.array([root], dtype=np.int64)
        for _ in range(_DEEPEST):
            if int(self._read(level[:1])[0]) != _INTERIOR:
                return level
            level = np.concatenate([self._children(int(number)) for number in level])
            if len(level) > self.count:
                break
        raise PageError("not a tree of table pages")

    def _children(self, number: int) -> Integers:
        page = self._read(np.array([number]))
        cells = int(_window(page, ">u2")[3])
        if page[0] != _INTERIOR or 12 + 2 * cells > self.usable:
            raise PageError("not an interior page")
        starts = _window(page, ">u2")[12 + 2 * np.arange(cells)]
        if cells and starts.max() > self.usable - 5:
            raise PageError("a cell outside of its page")
        positions = np.append(starts.astype(np.int64), 8)  # the last child is in the page's header
        children: Integers = _window(page, ">u4")[positions].astype(np.int64)
        return children

    def _read(self, numbers: Integers) -> NDArray[np.uint8]:
        """Pages one after the other, and the margin."""
        if numbers.min() < 1 or numbers.max() > self.count:
            raise PageError("a page outside of the file")
        pages = np.zeros(len(numbers) * self.size + _MARGIN, dtype=np.uint8)
        runs = np.flatnonzero(np.diff(numbers, prepend=-1) != 1)
        for first, end in zip(runs.tolist(), [*runs[1:].tolist(), len(numbers)], strict=True):
            self.file.seek((int(numbers[first]) - 1) * self.size)
            wanted = pages.data[first * self.size : end * self.size]
            if self.file.readinto(wanted) != len(wanted):  # type: ignore[attr-defined]
                raise PageError("the file ends early")
        return pages


def open_pages(file: BinaryIO) -> PageFile:
    """Of a file opened without a buffer."""
    header = file.read(100)
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    usable = size - header[20] if len(header) == 100 else 0
    if usable < 480 or size & (size - 1):
        raise PageError("no header of SQLite")
    return PageFile(file, size, usable, file.seek(0, 2) // size)


@dataclass(frozen=True)
class _Cells:
    """The records of some leaf pages."""

    pages: NDArray[np.uint8]
    rowids: Integers
    types: Integers
    """Where the types of each record begin."""
    bodies: Integers
    ends: Integers


def _cells_of(pages: NDArray[np.uint8], file: PageFile) -> _Cells:
    positions, pages_of = _cells(pages, file)
    try:
        payloads, positions = _varints(pages, positions)
        rowids, positions = _varints(pages, positions)
        sizes, types = _varints(pages, positions)
    except IndexError as error:  # a position outside of the pages
        raise PageError("damaged cells") from error
    ends, bodies = positions + payloads, positions + sizes
    local = (payloads >= 1) & (payloads <= file.usable - 35)
    if not (local & (ends <= pages_of + file.usable) & (types <= bodies) & (bodies <= ends)).all():
        raise PageError("overflow pages")
    return _Cells(pages, rowids, types, bodies, ends)


def _columns_of(cells: _Cells, table: StoredTable, names: Sequence[str]) -> list[Column]:
    wanted = {table.columns.index(name): name for name in names if name != table.rowid}
    found: dict[str, Column] = {} if table.rowid is None else {table.rowid: cells.rowids}
    types_at, positions = cells.types, cells.bodies
    # Rows older than a column end before its type does.
    may_end = int((cells.bodies - cells.types).min()) <= max(wanted, default=-1)
    try:
        for column in range(max(wanted, default=-1) + 1):
            types = cells.pages.take(types_at)
            if may_end:
                types[types_at >= cells.bodies] = 0
            low, high = int(types.min()), int(types.max())
            if high >= 0x80:
                types, sizes, types_at = _long_types(cells.pages, types, types_at)
                may_end = True
            else:
                sizes, types_at = _SIZES[low] if low == high else _SIZES.take(types), types_at + 1
            if column in wanted:
                found[wanted[column]] = _integers(cells.pages, types, positions)
            positions = positions + sizes
    except IndexError as error:
        raise PageError("damaged records") from error
    if (positions > cells.ends).any():
        raise PageError("records beyond their ends")
    return [found[name] for name in names]


def _long_types(
    pages: NDArray[np.uint8], types: NDArray[np.uint8], positions: Integers
) -> tuple[NDArray[np.uint8], Integers, Integers]:
    """Types (that of a long text is _RESERVED), sizes, and where the next types lie, if some take several bytes."""
    long = np.flatnonzero(types >= 0x80)
    numbers, behind = _varints(pages, positions[long])
    if numbers.min() < 12 or numbers.max() > len(pages):
        raise PageError("a type that does not exist, or a value on overflow pages")
    types[long] = _RESERVED
    sizes, following = _SIZES.take(types), positions + 1
    sizes[long], following[long] = (numbers - 12) // 2, behind
    return types, sizes, following


def _integers(pages: NDArray[np.uint8], types: NDArray[np.uint8], positions: Integers) -> Column:
    low, high = int(types.min()), int(types.max())
    if high > _ONE or (types == _FRACTION).any():
        raise PageError("not a whole number")
    values = _window(pages, ">i8")[positions].astype(np.int64)
    if low == high:
        values >>= _SHIFTS[low]
    else:
        values >>= _SHIFTS[types]
    if high >= _ZERO:
        constant = types >= _ZERO
        values[constant] = types[constant] - _ZERO
    return values if low else np.ma.masked_array(values, mask=types == 0)


def _cells(pages: NDArray[np.uint8], file: PageFile) -> tuple[Integers, Integers]:
    """Where the cells of the pages begin, and where their pages do."""
    starts = np.arange(0, len(pages) - _MARGIN, file.size)
    counts = _window(pages, ">u2")[starts + 3].astype(np.int64)
    if (pages[starts] != _LEAF).any() or (8 + 2 * counts > file.usable).any():
        raise PageError("not a leaf page")
    pages_of = np.repeat(starts, counts)
    places = np.arange(len(pages_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    offsets = _window(pages, ">u2")[pages_of + 8 + 2 * places].astype(np.int64)
    if len(offsets) and (offsets.max() > file.usable - 4 or offsets.min() < 8):
        raise PageError("a cell outside of its page")
    return pages_of + offsets, pages_of


def _varints(pages: NDArray[np.uint8], positions: Integers) -> tuple[Integers, Integers]:
    """Numbers of one to nine bytes, and where they end."""
    first = pages.take(positions)
    values, ends, length = (first & 0x7F).astype(np.int64), positions + 1, 1
    goes_on = first >= 0x80
    while goes_on.all() and length < _LONGEST_VARINT - 1:  # most are equally long
        following = pages.take(ends)
        values = values << 7 | (following & 0x7F)
        ends, length, goes_on = ends + 1, length + 1, following >= 0x80
    rows = np.flatnonzero(goes_on)
    while len(rows):
        length += 1
        bytes_ = pages.take(ends[rows]).astype(np.int64)
        last = length == _LONGEST_VARINT
        values[rows] = (values[rows] << 8) | bytes_ if last else (values[rows] << 7) | (bytes_ & 0x7F)
        ends[rows] += 1
        rows = rows[:0] if last else rows[bytes_ >= 0x80]
    return values, ends


def _window(pages: NDArray[np.uint8], kind: str) -> Column:
    """The number that begins at each position."""
    dtype = np.dtype(kind)
    numbers: Column = np.ndarray((len(pages) - dtype.itemsize + 1,), dtype=dtype, buffer=pages, strides=(1,))
    return numbers


def joined(parts: list[list[Column]]) -> list[Column]:
    return [_concatenated(columns) for columns in zip(*parts, strict=True)]


def _concatenated(columns: Sequence[Column]) -> Column:
    values: Column = np.concatenate([np.ma.getdata(column) for column in columns])
    if not any(isinstance(column, np.ma.MaskedArray) for column in columns):
        return values
    return np.ma.masked_array(values, mask=np.concatenate([np.ma.getmaskarray(column) for column in columns]))
