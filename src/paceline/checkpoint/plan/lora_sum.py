"""LoRA: the bytes of W + scale · B · A, a band of rows at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.checkpoint.plan.file_plan import TensorBytes
from paceline.checkpoint.plan.read_tensor import Array, read_tensor
from paceline.checkpoint.tensors.bf16 import as_numbers


def lora_sum(part: TensorBytes) -> Array:
    """A range of bytes of the sum W + scale · B · A."""
    tensor, lora = part.tensor, part.tensor.lora
    assert lora is not None
    row = tensor.shape[1] * tensor.dtype.bytes
    first, last = part.start // row, -(-(part.start + part.length) // row)
    weights = as_numbers(read_tensor(replace(tensor, lora=None), first * row, (last - first) * row), tensor.dtype)
    low_rank = lora.left.shape[1]
    width = lora.left.dtype.bytes
    left = as_numbers(
        read_tensor(lora.left, first * low_rank * width, (last - first) * low_rank * width), lora.left.dtype
    ).reshape(last - first, low_rank)
    right = as_numbers(read_tensor(lora.right, 0, lora.right.bytes), lora.right.dtype)
    exact = np.float64 if tensor.dtype.name == "Float64" else np.float32
    product = left.astype(exact) @ right.reshape(lora.right.shape).astype(exact)
    total = weights.reshape(last - first, -1).astype(exact) + product * exact(lora.scale)
    data: Array = total.astype(weights.dtype).reshape(-1).view(np.uint8)
    return data[part.start - first * row :][: part.length]
