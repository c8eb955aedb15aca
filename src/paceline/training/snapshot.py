"""Weights of any framework as bytes; copied where training goes on while they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.arrays import HeldTensor
from paceline.checkpoint.dtypes import DType, named
from paceline.errors import PacelineError

Bytes = npt.NDArray[np.uint8]
_NAMES = {
    "bool": "Bool", "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64", "uint8": "UInt8",
    "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64", "float16": "Float16", "float32": "Float32",
    "float64": "Float64", "bfloat16": "BFloat16",
}  # fmt: skip


def hold(values: Mapping[str, Any]) -> list[HeldTensor]:
    """Without copying what lies in this machine's memory: for a writer that is done before training goes on."""
    held = []
    for name, value in values.items():
        dtype, shape, data = _bytes_of(name, value)
        held.append(HeldTensor(name, dtype, shape, data.data))
    return held


class Snapshot:
    """A copy of all weights; its memory is used again, because fresh memory costs more than copying does."""

    def __init__(self) -> None:
        self._buffers: dict[str, Bytes] = {}

    def take(self, values: Mapping[str, Any]) -> list[HeldTensor]:
        kept = []
        buffers = {}
        for name, value in values.items():
            dtype, shape, data = _bytes_of(name, value)
            buffer = self._buffers.get(name)
            if buffer is None or len(buffer) != len(data):
                buffer = np.empty(len(data), np.uint8)
            np.copyto(buffer, data)
            buffers[name] = buffer
            kept.append(HeldTensor(name, dtype, shape, buffer.data))
        self._buffers = buffers
        return kept


def _bytes_of(name: str, value: Any) -> tuple[DType, tuple[int, ...], Bytes]:
    kind, array = _array(value)
    dtype = named(_NAMES.get(kind, ""))
    if dtype is None:
        raise PacelineError(f"{name}: {kind} cannot be saved", hint=f"known: {', '.join(_NAMES)}")
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return dtype, tuple(array.shape) if kind != "bfloat16" else tuple(value.shape), flat


def _array(value: Any) -> tuple[str, npt.NDArray[Any]]:
    """Its type's name, and its numbers (bfloat16: as 16-bit integers, or bytes)."""
    if isinstance(value, bool | int):
        return "int64", np.asarray(value, np.int64)
    if isinstance(value, float):
        return "float32", np.asarray(value, np.float32)  # as MindSpore does
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return array.dtype.name, array.view(np.int16) if array.dtype.name == "bfloat16" else array
    kind = str(value.dtype).rpartition(".")[2].lower()
    if hasattr(value, "asnumpy"):  # MindSpore, whose bfloat16 NumPy cannot hold
        if kind == "bfloat16":
            return kind, np.frombuffer(value.get_bytes(), np.uint8)
        return kind, np.asarray(value.asnumpy())
    tensor = value.detach().cpu()
    if kind == "bfloat16":
        import torch

        return kind, np.asarray(tensor.contiguous().view(torch.int16).numpy())
    return kind, np.asarray(tensor.numpy())
