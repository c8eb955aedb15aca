"""Rectangular parts of a tensor, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """Elements start … start + shape of each axis."""

    start: Shape
    shape: Shape

    @property
    def size(self) -> int:
        return prod(self.shape)

    def common(self, other: Box) -> Box | None:
        # Asked for every piece of every file: a plain loop is four times faster than expressions.
        start, shape = [], []
        for a, n, b, m in zip(self.start, self.shape, other.start, other.shape, strict=True):
            low = a if a > b else b
            extent = (a + n if a + n < b + m else b + m) - low
            if extent <= 0:
                return None
            start.append(low)
            shape.append(extent)
        return Box(tuple(start), tuple(shape))

    def within(self, outer: Box) -> Box:
        """The same elements, counted from the start of `outer`."""
        return Box(tuple(a - b for a, b in zip(self.start, outer.start, strict=True)), self.shape)

    def __str__(self) -> str:
        ranges = ", ".join(f"{a}:{a + n}" for a, n in zip(self.start, self.shape, strict=True))
        return f"[{ranges}]"


def whole(shape: Shape) -> Box:
    return Box((0,) * len(shape), shape)


def strides(shape: Shape) -> Shape:
    """Of a row-major array, in elements."""
    found = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        found[axis] = found[axis + 1] * shape[axis + 1]
    return tuple(found)


def flat_boxes(shape: Shape, low: int, high: int) -> Iterator[Box]:
    """Boxes that hold elements low … high of a row-major array, in order: a ragged head, whole rows, a ragged tail.

    >>> [str(box) for box in flat_boxes((4, 5), 3, 17)]
    ['[0:1, 3:5]', '[1:3, 0:5]', '[3:4, 0:2]']
    """
    if low >= high:
        return
    if len(shape) == 1:
        yield Box((low,), (high - low,))
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
        yield Box((first,) + (0,) * (len(shape) - 1), (full - first, *shape[1:]))
    if high % row and full >= first:
        yield from _in_row(shape, full, 0, high % row)


def _in_row(shape: Shape, row: int, low: int, high: int) -> Iterator[Box]:
    for box in flat_boxes(shape[1:], low, high):
        yield Box((row, *box.start), (1, *box.shape))


def are_disjoint(boxes: list[Box]) -> bool:
    if len({box.shape for box in boxes}) == 1:
        # Different cells of one grid, as all layouts make them.
        grid = boxes[0].shape
        if all(a % n == 0 for box in boxes for a, n in zip(box.start, grid, strict=True) if n):
            return len(set(boxes)) == len(boxes)
    return not any(a.common(b) for i, a in enumerate(boxes) for b in boxes[:i])
