"""TensorSlice: a rectangular part of a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Tuple

from paceline.core.zip_strict import zip_strict

Shape = Tuple[int, ...]


@dataclass(frozen=True)
class TensorSlice:
    """Elements start … start + shape along each axis."""

    start: Shape
    shape: Shape

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def intersection(self, other: TensorSlice) -> TensorSlice | None:
        # Called for every piece of every file: a plain loop is four times faster than expressions.
        start, shape = [], []
        for a, n, b, m in zip_strict(self.start, self.shape, other.start, other.shape):
            low = a if a > b else b
            extent = (a + n if a + n < b + m else b + m) - low
            if extent <= 0:
                return None
            start.append(low)
            shape.append(extent)
        return TensorSlice(tuple(start), tuple(shape))

    def relative_to(self, outer: TensorSlice) -> TensorSlice:
        """The same elements, with offsets relative to `outer`."""
        return TensorSlice(tuple(a - b for a, b in zip_strict(self.start, outer.start)), self.shape)

    def __str__(self) -> str:
        ranges = ", ".join(f"{a}:{a + n}" for a, n in zip_strict(self.start, self.shape))
        return f"[{ranges}]"


def full_slice(shape: Shape) -> TensorSlice:
    return TensorSlice((0,) * len(shape), shape)


def strides(shape: Shape) -> Shape:
    """Strides of a row-major array, in elements."""
    found = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        found[axis] = found[axis + 1] * shape[axis + 1]
    return tuple(found)


def flat_slices(shape: Shape, low: int, high: int) -> Iterator[TensorSlice]:
    """Slices that hold elements low … high of a row-major array, in order: a partial row, full rows, a partial row.

    >>> [str(each) for each in flat_slices((4, 5), 3, 17)]
    ['[0:1, 3:5]', '[1:3, 0:5]', '[3:4, 0:2]']
    """
    if low >= high:
        return
    if len(shape) == 1:
        yield TensorSlice((low,), (high - low,))
        return
    row = prod(shape[1:])
    first, last = low // row, (high - 1) // row
    if first == last and (low % row or high % row):
        yield from _in_row(shape, first, low % row, high - first * row)
        return
    if low % row:
        yield from _in_row(shape, first, low % row, row)
        first += 1
    full = high // row
    if full > first:
        yield TensorSlice((first,) + (0,) * (len(shape) - 1), (full - first, *shape[1:]))
    if high % row and full >= first:
        yield from _in_row(shape, full, 0, high % row)


def _in_row(shape: Shape, row: int, low: int, high: int) -> Iterator[TensorSlice]:
    for tensor_slice in flat_slices(shape[1:], low, high):
        yield TensorSlice((row, *tensor_slice.start), (1, *tensor_slice.shape))


def are_disjoint(slices: list[TensorSlice]) -> bool:
    if len({tensor_slice.shape for tensor_slice in slices}) == 1:
        # Cells of one grid, as all layouts produce them.
        grid = slices[0].shape
        if all(a % n == 0 for tensor_slice in slices for a, n in zip_strict(tensor_slice.start, grid) if n):
            return len(set(slices)) == len(slices)
    active: list[TensorSlice] = []
    for each in sorted(slices, key=lambda tensor_slice: tensor_slice.start):
        # Sorted by the first axis: what ended before this one begins can meet no later one either.
        active = [other for other in active if not other.start or other.start[0] + other.shape[0] > each.start[0]]
        if any(each.intersection(other) for other in active):
            return False
        active.append(each)
    return True
