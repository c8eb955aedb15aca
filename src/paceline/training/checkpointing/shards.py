"""The part of a sharded tensor (torch DTensor: FSDP2, tensor parallel) that this rank holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.checkpoint.tensors.tensor_slice import Shape, TensorSlice
from paceline.core.errors import PacelineError


@dataclass(frozen=True)
class Shard:
    data: Any
    """A plain tensor."""
    full_shape: Shape
    slice: TensorSlice


def is_sharded(value: Any) -> bool:
    return hasattr(value, "to_local") and hasattr(value, "placements")


def local_shard(name: str, value: Any) -> Shard:
    """This rank's part of a DTensor, without communication; replicated ones are held in full by every rank."""
    if any(placement.is_partial() for placement in value.placements):
        raise PacelineError(f"{name}: a partial sum over ranks cannot be saved", hint="redistribute it first")
    data, full = value.to_local(), tuple(value.shape)
    shape, start = _place(value)
    # A rank that holds nothing of an unevenly split tensor has an empty part somewhere.
    part = TensorSlice(start, shape) if tuple(data.shape) == shape else TensorSlice(start, tuple(data.shape))
    return Shard(data, full, part)


def _place(value: Any) -> tuple[Shape, Shape]:
    """Shape and offset of the local part; torch knows its own ways to split (also by two meshes on one axis)."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, start = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    return tuple(map(int, shape)), tuple(map(int, start))
