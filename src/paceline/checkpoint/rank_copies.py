"""Copies of one slice in the files of several ranks: whether they hold the same values.

A strategy says which ranks hold the same tensor. Files that only tell their own slices do not: names may mean something else on
each rank (pipeline stages built of equal modules).
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.checkpoint_content import Checkpoint
from paceline.checkpoint.plan.file_plan import Piece, PlannedTensor
from paceline.checkpoint.plan.read_tensor import Array, read_tensor
from paceline.checkpoint.tensors.dtypes import DType
from paceline.checkpoint.tensors.tensor_slice import TensorSlice
from paceline.core.errors import PacelineError

_COMPARED_BYTES = 4096
_COMPARED_COPIES = 4
_COMPARED_TENSORS = 32
"""Where names mean something else on each rank, nearly all do."""
_MOST_DRIFT = 0.1
"""Relative distance of two copies. Rounding makes replicas drift apart by far less; other weights are about 1 apart."""
_NUMBERS = frozenset(("Float16", "Float32", "Float64", "BFloat16"))

Copies = Sequence[Tuple[int, Piece]]


def require_same_values(checkpoint: Checkpoint) -> None:
    """Before files of several ranks are joined into one."""
    if what := different_values(checkpoint):
        hint = "files of pipeline stages with equal names cannot be joined; give every stage names of its own"
        raise PacelineError(what, hint=hint)


def different_values(checkpoint: Checkpoint) -> Optional[str]:
    """What is wrong if ranks saved different tensors under one name, by a sample of the tensors that several ranks hold."""
    if checkpoint.strategy is not None:
        return None
    shared = [each for each in checkpoint.parameters.values() if each.layout is None and len(each.copies) > 1]
    sample = shared[:: -(-len(shared) // _COMPARED_TENSORS) or 1]
    found = ((each.name, differing_ranks(each.copies)) for each in sample)
    return next((said(name, *ranks) for name, ranks in found if ranks), None)


def differing_ranks(copies: Copies) -> Optional[Tuple[int, int]]:
    """Two ranks whose copies of one slice hold different values, by how they begin."""
    by_slice: Dict[TensorSlice, List[Tuple[int, Piece]]] = {}
    for rank, piece in copies:
        by_slice.setdefault(piece.slice, []).append((rank, piece))
    for (first_rank, first), *others in by_slice.values():
        for rank, piece in others[:: -(-len(others) // (_COMPARED_COPIES - 1)) or 1]:
            if _distance(_start(first), _start(piece)) > _MOST_DRIFT:
                return first_rank, rank
    return None


def said(name: str, first: int, second: int) -> str:
    return f"{name}: ranks {first} and {second} saved different values under this name"


def _start(piece: Piece) -> npt.NDArray[Any]:
    whole = PlannedTensor(piece.stored.name, piece.stored.dtype, piece.slice, [piece], 0)
    return _numbers(read_tensor(whole, 0, min(whole.bytes, _COMPARED_BYTES)), piece.stored.dtype)


def _numbers(data: Array, dtype: DType) -> npt.NDArray[Any]:
    """Without a package for bfloat16; types without an order of size by their bytes."""
    if dtype.name == "BFloat16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype.name in _NUMBERS:
        return data.view(np.dtype(dtype.name.lower())).astype(np.float64)
    return data.astype(np.float64)


def _distance(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    """0: equal, 1: opposite."""
    together = float(np.linalg.norm(left) + np.linalg.norm(right))
    return float(np.linalg.norm(left - right)) / together if together else 0.0
