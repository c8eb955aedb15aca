"""LoRA: W + scale · B · A, added while W is copied, a band of rows at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from paceline.checkpoint.frame import Addition, Payload, Wanted
from paceline.checkpoint.gather import Array, read_tensor
from paceline.checkpoint.numbers import numbers
from paceline.errors import PacelineError, UsageError

_FLOATS = ("Float16", "BFloat16", "Float32", "Float64")


def merged(tensors: Mapping[str, Wanted], scale: float) -> list[Wanted]:
    """Full tensors of a fine-tuned model without its LoRA ones, which are added to the weights they belong to."""
    if not math.isfinite(scale):
        raise UsageError(f"a scale of {scale}")
    additions = dict(_addition(name, tensors, scale) for name in tensors if _is_first(name))
    if not additions:
        raise PacelineError("no LoRA weights in this checkpoint", hint="their names hold lora_a or .lora_A.")
    kept = {name: tensor for name, tensor in tensors.items() if "lora_" not in name.lower()}
    return [replace(tensor, addition=additions.get(name)) for name, tensor in kept.items()]


def added(part: Payload) -> Array:
    """A stretch of the sum's bytes."""
    tensor, addition = part.tensor, part.tensor.addition
    assert addition is not None
    row = tensor.shape[1] * tensor.dtype.bytes
    first, last = part.start // row, -(-(part.start + part.length) // row)
    weights = numbers(read_tensor(replace(tensor, addition=None), first * row, (last - first) * row), tensor.dtype)
    low_rank = addition.left.shape[1]
    width = addition.left.dtype.bytes
    left = numbers(read_tensor(addition.left, first * low_rank * width, (last - first) * low_rank * width),
                    addition.left.dtype).reshape(last - first, low_rank)  # fmt: skip
    right = numbers(read_tensor(addition.right, 0, addition.right.bytes), addition.right.dtype)
    exact = np.float64 if tensor.dtype.name == "Float64" else np.float32
    product = left.astype(exact) @ right.reshape(addition.right.shape).astype(exact)
    total = weights.reshape(last - first, -1).astype(exact) + product * exact(addition.scale)
    data: Array = total.astype(weights.dtype).reshape(-1).view(np.uint8)
    return data[part.start - first * row :][: part.length]


def _addition(name: str, tensors: Mapping[str, Wanted], scale: float) -> tuple[str, Addition]:
    base = base_name(name)
    second = name.replace("lora_a", "lora_b").replace("lora_A", "lora_B")
    for needed in (base, second):
        if needed not in tensors:
            raise PacelineError(
                f"{name}: {needed} is not in the checkpoint", hint="LoRA needs the weights it was made for"
            )
    right, left, weights = tensors[name], tensors[second], tensors[base]
    shapes = left.shape, right.shape, weights.shape
    if not (all(len(shape) == 2 for shape in shapes) and left.shape[1] == right.shape[0]
            and (left.shape[0], right.shape[1]) == weights.shape):  # fmt: skip
        raise PacelineError(
            f"{name}: {list(left.shape)} · {list(right.shape)} cannot be added to {list(weights.shape)}"
        )
    for each in (right, left, weights):
        if each.dtype.name not in _FLOATS:
            raise PacelineError(f"{each.name}: {each.dtype.name} weights cannot be added to")
    return base, Addition(left, right, scale)


def base_name(name: str) -> str:
    """The weights a LoRA tensor belongs to, by MindPet's, MindFormers' and PEFT's habits.

    >>> base_name("layers.0.wq.mindpet_delta_lora_a"), base_name("layers.0.wq.lora_A.weight")
    ('layers.0.wq.weight', 'layers.0.wq.weight')
    """
    return name.replace("_lora_a", "").replace("mindpet_delta", "weight").replace(".lora_A", "")


def _is_first(name: str) -> bool:
    is_state = name.startswith(("adam_m.", "adam_v."))
    return not is_state and ("lora_a" in name or "lora_A" in name)
