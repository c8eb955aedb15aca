"""Weights of any framework as bytes: wrapped without a copy, or copied so that training can continue."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.tensors.dtypes import DType, named
from paceline.checkpoint.write_checkpoint import InMemoryTensor
from paceline.core.errors import PacelineError
from paceline.training.checkpointing.shards import Shard, is_sharded, local_shard

Bytes = npt.NDArray[np.uint8]
_NAMES = {
    "bool": "Bool",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint8": "UInt8",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float16": "Float16",
    "float32": "Float32",
    "float64": "Float64",
    "bfloat16": "BFloat16",
}


def wrap_weights(values: Mapping[str, Any]) -> list[InMemoryTensor]:
    """Without a copy of host memory: for a writer that finishes before training continues."""
    return [_with_slice(_wrapped(name, data), shard) for name, data, shard in _local(values)]


class WeightSnapshot:
    """A copy of all weights in memory that is allocated once, because allocating takes far longer than copying.

    Each `take` overwrites what the previous one returned.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._preparing: threading.Thread | None = None

    def prepare(self, values: Mapping[str, Any]) -> None:
        """Allocate memory for tensors like `values`, in a thread."""
        size = sum(_padded_size(data) for _, data, _ in _local(values))
        self._preparing = threading.Thread(target=self._reserve, args=(size,), name="paceline-snapshot", daemon=True)
        self._preparing.start()

    def take(self, values: Mapping[str, Any]) -> list[InMemoryTensor]:
        """Copy the values; when this returns, training may change its weights."""
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None
        local = list(_local(values))
        size = sum(_padded_size(data) for _, data, _ in local)
        if len(self._memory) < size:
            self._memory = np.empty(size, np.uint8)
        kept, at = [], 0
        for name, data, shard in local:
            kept.append(_with_slice(_copied(name, data, self._memory[at : at + _size(data)]), shard))
            at += _padded_size(data)
        return kept

    def _reserve(self, size: int) -> None:
        try:
            memory = np.empty(size, np.uint8)
        except MemoryError:
            return  # reported when a checkpoint is saved
        memory.fill(0)  # touches every page; NumPy releases the GIL meanwhile
        self._memory = memory


def _local(values: Mapping[str, Any]) -> Iterator[tuple[str, Any, Shard | None]]:
    """(name, what this rank holds, which part of the tensor that is); where anything is sharded, also of full tensors."""
    for name, value in values.items():
        shard = local_shard(name, value) if is_sharded(value) else None
        yield name, value if shard is None else shard.data, shard


def _with_slice(tensor: InMemoryTensor, shard: Shard | None) -> InMemoryTensor:
    return tensor if shard is None else replace(tensor, full_shape=shard.full_shape, start=shard.slice.start)


def _copied(name: str, value: Any, target: Bytes) -> InMemoryTensor:
    """Copy in one pass, from any device and with any strides."""
    dtype = _dtype(name, value)
    if _is_torch(value):
        import torch

        # Uses all of torch's threads, and copies directly from an accelerator.
        torch.from_numpy(target).view(value.dtype).view(value.shape).copy_(value.detach())
    else:
        array = _array(value)
        np.copyto(target.view(array.dtype).reshape(array.shape), array)
    return InMemoryTensor(name, dtype, _shape(value), target.data)


def _wrapped(name: str, value: Any) -> InMemoryTensor:
    dtype, array = _dtype(name, value), _array(value)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return InMemoryTensor(name, dtype, _shape(value), flat.data)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


def _padded_size(value: Any) -> int:
    """Size rounded up to 64 bytes: aligned tensors are copied with vector instructions."""
    return -(-_size(value) // 64) * 64


def _size(value: Any) -> int:
    if isinstance(value, (int, float)):
        return _array(value).nbytes
    return int(value.numel() * value.element_size()) if _is_torch(value) else int(getattr(value, "nbytes", 0))


def _is_torch(value: Any) -> bool:
    return hasattr(value, "detach") and not hasattr(value, "asnumpy")


def _dtype(name: str, value: Any) -> DType:
    kind = _kind(value)
    dtype = named(_NAMES.get(kind, ""))
    if dtype is None:
        raise PacelineError(f"{name}: tensors of type {kind} cannot be saved", hint=f"known: {', '.join(_NAMES)}")
    if _is_torch(value) and str(value.layout) != "torch.strided":
        raise PacelineError(
            f"{name}: tensors with layout {value.layout} cannot be saved", hint="save it as x.to_dense()"
        )
    return dtype


def _kind(value: Any) -> str:
    if isinstance(value, (bool, int)):
        return "int64"
    if isinstance(value, float):
        return "float32"  # as in MindSpore
    return str(getattr(value, "dtype", type(value).__name__)).rpartition(".")[2].lower()


def _array(value: Any) -> npt.NDArray[Any]:
    """The value as a NumPy array; bfloat16, which NumPy lacks, as 16-bit integers or bytes."""
    kind = _kind(value)
    if isinstance(value, (bool, int, float)):
        return np.asarray(value, kind)
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value).view(np.int16) if kind == "bfloat16" else np.asarray(value)
    if hasattr(value, "asnumpy"):  # MindSpore
        return np.frombuffer(value.get_bytes(), np.uint8) if kind == "bfloat16" else np.asarray(value.asnumpy())
    tensor = value.detach().cpu()
    if kind == "bfloat16":
        import torch

        tensor = tensor.contiguous().view(torch.int16)
    return np.asarray(tensor.numpy())
