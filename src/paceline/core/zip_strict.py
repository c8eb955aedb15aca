"""`zip(..., strict=True)` for Python 3.8 and 3.9, where training jobs run."""

from __future__ import annotations

import sys
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

_MISSING = object()


@overload
def zip_strict(first: Iterable[A], second: Iterable[B], /) -> Iterator[tuple[A, B]]: ...
@overload
def zip_strict(first: Iterable[A], second: Iterable[B], third: Iterable[C], /) -> Iterator[tuple[A, B, C]]: ...
@overload
def zip_strict(
    first: Iterable[A], second: Iterable[B], third: Iterable[C], fourth: Iterable[D], /
) -> Iterator[tuple[A, B, C, D]]: ...
def zip_strict(*iterables: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Rows of iterables of equal length; ValueError where one ends before the others."""
    if sys.version_info >= (3, 10):
        return zip(*iterables, strict=True)
    return _checked(iterables)


def _checked(iterables: tuple[Iterable[Any], ...]) -> Iterator[tuple[Any, ...]]:
    for row in zip_longest(*iterables, fillvalue=_MISSING):
        if any(value is _MISSING for value in row):
            raise ValueError("zip_strict(): the arguments differ in length")
        yield row
