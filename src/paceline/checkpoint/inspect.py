"""Show what a checkpoint holds and on which ranks; compare two checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.checkpoint_content import Checkpoint
from paceline.checkpoint.plan.file_plan import PlannedTensor
from paceline.checkpoint.plan.read_tensor import Array, read_tensor
from paceline.checkpoint.tensors.bf16 import as_numbers
from paceline.checkpoint.tensors.dtypes import TEXT, DType, label
from paceline.checkpoint.tensors.tensor_slice import Shape, TensorSlice
from paceline.core.zip_strict import zip_strict

_BLOCK = 16 << 20


@dataclass(frozen=True)
class TensorRow:
    """A parameter, or a tensor that the strategy does not list."""

    name: str
    dtype: str
    shape: Shape
    bytes: int
    cuts: Shape | None
    """Number of slices along each axis; None: unknown."""
    ranks: dict[int, TensorSlice]
    """Rank → slice it holds."""


@dataclass(frozen=True)
class Difference:
    name: str
    what: str


def tensor_rows(checkpoint: Checkpoint) -> list[TensorRow]:
    found = []
    for parameter in checkpoint.parameters.values():
        size = PlannedTensor(parameter.name, parameter.dtype, TensorSlice((), parameter.shape), ()).bytes
        ranks = {rank: piece.slice for rank, piece in parameter.copies}
        cuts = _cuts(parameter.shape, next(iter(ranks.values())).shape) if ranks else None
        found.append(TensorRow(parameter.name, label(parameter.dtype), parameter.shape, size, cuts, ranks))
    for name, copies in checkpoint.unlisted.items():
        stored = next(iter(copies.values())).stored
        found.append(
            TensorRow(
                name, label(stored.dtype), stored.shape, stored.bytes, None, {r: p.slice for r, p in copies.items()}
            )
        )
    return found


def _cuts(full: Shape, part: Shape) -> Shape:
    return tuple(a // b if b else 1 for a, b in zip_strict(full, part))


def differences(ours: Checkpoint, theirs: Checkpoint) -> Iterator[Difference]:
    """Compare two checkpoints of any layout and format, parameter by parameter, bit by bit."""
    left, right = ours.full_tensors(), theirs.full_tensors()
    for name in left:
        if name not in right:
            yield Difference(name, f"only in {ours.url}")
    for name in right:
        if name not in left:
            yield Difference(name, f"only in {theirs.url}")
    for name in left:
        if name in right and (what := _compare(left[name], right[name])):
            yield Difference(name, what)


def _compare(left: PlannedTensor, right: PlannedTensor) -> str | None:
    if left.dtype != right.dtype or left.shape != right.shape:
        return f"{label(left.dtype)} {list(left.shape)} versus {label(right.dtype)} {list(right.shape)}"
    width = left.dtype.bytes
    count, largest, first = 0, 0.0, None
    for start in range(0, left.bytes, _BLOCK):
        length = min(_BLOCK, left.bytes - start)
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
    amount = f", by up to {largest:.3g}" if largest else ""
    return f"{count:,} of {size:,} elements differ{amount}; the first at {where}"


def _largest(left: Array, right: Array, dtype: DType, differ: npt.NDArray[np.bool_]) -> float:
    if dtype.name in ("", TEXT, "Int4", "Bool"):
        return 0.0
    a: npt.NDArray[Any] = as_numbers(left, dtype)[differ].astype(np.float64)
    b: npt.NDArray[Any] = as_numbers(right, dtype)[differ].astype(np.float64)
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(a - b), initial=0.0))
