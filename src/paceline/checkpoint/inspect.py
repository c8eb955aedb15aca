"""What a checkpoint holds, who holds it, and how two of them differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.box import Box, Shape
from paceline.checkpoint.dtypes import TEXT, DType, label
from paceline.checkpoint.frame import Wanted
from paceline.checkpoint.gather import Array, read_tensor
from paceline.checkpoint.numbers import numbers
from paceline.checkpoint.source import Checkpoint

_STEP = 16 << 20


@dataclass(frozen=True)
class Row:
    """A parameter, or a tensor no strategy speaks of."""

    name: str
    dtype: str
    shape: Shape
    bytes: int
    cuts: Shape | None
    """Into how many parts each axis is cut; None: not known."""
    ranks: dict[int, Box]
    """Rank → what it holds."""


@dataclass(frozen=True)
class Difference:
    name: str
    what: str


def rows(checkpoint: Checkpoint) -> list[Row]:
    found = []
    for parameter in checkpoint.parameters.values():
        size = Wanted(parameter.name, parameter.dtype, Box((), parameter.shape), ()).bytes
        ranks = {rank: piece.box for rank, piece in parameter.copies}
        cuts = _cuts(parameter.shape, next(iter(ranks.values())).shape)
        found.append(Row(parameter.name, label(parameter.dtype), parameter.shape, size, cuts, ranks))
    for name, copies in checkpoint.loose.items():
        stored = next(iter(copies.values())).stored
        found.append(
            Row(name, label(stored.dtype), stored.shape, stored.bytes, None, {r: p.box for r, p in copies.items()})
        )
    return found


def _cuts(full: Shape, part: Shape) -> Shape:
    return tuple(a // b if b else 1 for a, b in zip(full, part, strict=True))


def differences(ours: Checkpoint, theirs: Checkpoint) -> Iterator[Difference]:
    """Of two checkpoints in any layout and format, parameter by parameter, bit by bit."""
    left, right = ours.full(), theirs.full()
    for name in left:
        if name not in right:
            yield Difference(name, f"only in {ours.url}")
    for name in right:
        if name not in left:
            yield Difference(name, f"only in {theirs.url}")
    for name in left:
        if name in right and (what := _compare(left[name], right[name])):
            yield Difference(name, what)


def _compare(left: Wanted, right: Wanted) -> str | None:
    if left.dtype != right.dtype or left.shape != right.shape:
        return f"{label(left.dtype)} {list(left.shape)} and {label(right.dtype)} {list(right.shape)}"
    width = left.dtype.bytes
    count, largest, first = 0, 0.0, None
    for start in range(0, left.bytes, _STEP):
        length = min(_STEP, left.bytes - start)
        a, b = read_tensor(left, start, length), read_tensor(right, start, length)
        if np.array_equal(a, b):
            continue
        differ = (a.reshape(-1, width) != b.reshape(-1, width)).any(axis=1)
        count += int(differ.sum())
        if first is None:
            first = start // width + int(differ.argmax())
        largest = max(largest, _largest(a, b, left.dtype, differ))
    if first is None:
        return None
    where = list(map(int, np.unravel_index(first, left.shape))) if left.shape else []
    size = left.bytes // width
    told = f", by up to {largest:.3g}" if largest else ""
    return f"{count:,} of {size:,} elements differ{told}; the first at {where}"


def _largest(left: Array, right: Array, dtype: DType, differ: npt.NDArray[np.bool_]) -> float:
    if dtype.name in ("", TEXT, "Int4", "Bool"):
        return 0.0
    a: npt.NDArray[Any] = numbers(left, dtype)[differ].astype(np.float64)
    b: npt.NDArray[Any] = numbers(right, dtype)[differ].astype(np.float64)
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(a - b), initial=0.0))
