"""Weights of any framework as bytes; copied where training goes on while they are written."""

from __future__ import annotations

import threading
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
    return [_held(name, value) for name, value in values.items()]


class Snapshot:
    """A copy of all weights, in memory that is asked for once: the kernel takes far longer to give it than a copy takes.

    What an earlier `take` returned is overwritten by the next one.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._preparing: threading.Thread | None = None

    def prepare(self, values: Mapping[str, Any]) -> None:
        """Memory for what is like `values`, made ready by a thread of its own, which ends with that."""
        size = sum(_room(value) for value in values.values())
        self._preparing = threading.Thread(target=self._reserve, args=(size,), name="paceline-snapshot", daemon=True)
        self._preparing.start()

    def take(self, values: Mapping[str, Any]) -> list[HeldTensor]:
        """Done when it returns: training may change its weights from then on."""
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None
        size = sum(_room(value) for value in values.values())
        if len(self._memory) < size:
            self._memory = np.empty(size, np.uint8)
        kept, at = [], 0
        for name, value in values.items():
            kept.append(_copied(name, value, self._memory[at : at + _size(value)]))
            at += _room(value)
        return kept

    def _reserve(self, size: int) -> None:
        try:
            memory = np.empty(size, np.uint8)
        except MemoryError:
            return  # said when there is something to save
        memory.fill(0)  # touches every page; NumPy lets other threads run meanwhile
        self._memory = memory


def _copied(name: str, value: Any, target: Bytes) -> HeldTensor:
    """In one pass, wherever the value lies and however it is strided."""
    dtype = _dtype(name, value)
    if _is_torch(value):
        import torch

        # With all of torch's threads, and straight from an accelerator.
        torch.from_numpy(target).view(value.dtype).view(value.shape).copy_(value.detach())
    else:
        array = _array(value)
        np.copyto(target.view(array.dtype).reshape(array.shape), array)
    return HeldTensor(name, dtype, _shape(value), target.data)


def _held(name: str, value: Any) -> HeldTensor:
    dtype, array = _dtype(name, value), _array(value)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return HeldTensor(name, dtype, _shape(value), flat.data)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


def _room(value: Any) -> int:
    """Bytes it takes; every tensor begins at a multiple of 64, as vector instructions like it."""
    return -(-_size(value) // 64) * 64


def _size(value: Any) -> int:
    if isinstance(value, int | float):
        return _array(value).nbytes
    return int(value.numel() * value.element_size()) if _is_torch(value) else int(getattr(value, "nbytes", 0))


def _is_torch(value: Any) -> bool:
    return hasattr(value, "detach") and not hasattr(value, "asnumpy")


def _dtype(name: str, value: Any) -> DType:
    kind = _kind(value)
    dtype = named(_NAMES.get(kind, ""))
    if dtype is None:
        raise PacelineError(f"{name}: {kind} cannot be saved", hint=f"known: {', '.join(_NAMES)}")
    if _is_torch(value) and str(value.layout) != "torch.strided":
        raise PacelineError(f"{name}: a tensor of {value.layout} cannot be saved", hint="save it as x.to_dense()")
    return dtype


def _kind(value: Any) -> str:
    if isinstance(value, bool | int):
        return "int64"
    if isinstance(value, float):
        return "float32"  # as MindSpore does
    return str(getattr(value, "dtype", type(value).__name__)).rpartition(".")[2].lower()


def _array(value: Any) -> npt.NDArray[Any]:
    """Its numbers (bfloat16, which NumPy does not know: as 16-bit integers, or bytes)."""
    kind = _kind(value)
    if isinstance(value, bool | int | float):
        return np.asarray(value, kind)
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).view(np.int16) if kind == "bfloat16" else np.asarray(value)
    if hasattr(value, "asnumpy"):  # MindSpore
        return np.frombuffer(value.get_bytes(), np.uint8) if kind == "bfloat16" else np.asarray(value.asnumpy())
    tensor = value.detach().cpu()
    if kind == "bfloat16":
        import torch

        tensor = tensor.contiguous().view(torch.int16)
    return np.asarray(tensor.numpy())
