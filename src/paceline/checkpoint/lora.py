"""Merge LoRA weights: W + scale · B · A, computed while W is copied (see plan/lora_sum.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from paceline.checkpoint.plan.file_plan import LoraUpdate, PlannedTensor
from paceline.core.errors import PacelineError, UsageError

_FLOATS = ("Float16", "BFloat16", "Float32", "Float64")


def merge_lora_tensors(tensors: Mapping[str, PlannedTensor], scale: float) -> list[PlannedTensor]:
    """The full tensors of a fine-tuned model, with its LoRA tensors added to the weights they belong to."""
    if not math.isfinite(scale):
        raise UsageError(f"invalid LoRA scale {scale}: must be a finite number")
    updates = dict(_lora_update(name, tensors, scale) for name in tensors if _is_lora_a(name))
    if not updates:
        raise PacelineError("no LoRA weights found in this checkpoint", hint="their names contain lora_a or .lora_A.")
    kept = {name: tensor for name, tensor in tensors.items() if "lora_" not in name.lower()}
    return [replace(tensor, lora=updates.get(name)) for name, tensor in kept.items()]


def _lora_update(name: str, tensors: Mapping[str, PlannedTensor], scale: float) -> tuple[str, LoraUpdate]:
    base = base_name(name)
    second = name.replace("lora_a", "lora_b").replace("lora_A", "lora_B")
    for needed in (base, second):
        if needed not in tensors:
            raise PacelineError(
                f"{name}: {needed} not found in the checkpoint", hint="merging needs the base weights of the LoRA"
            )
    right, left, weights = tensors[name], tensors[second], tensors[base]
    shapes = left.shape, right.shape, weights.shape
    if not (
        all(len(shape) == 2 for shape in shapes)
        and left.shape[1] == right.shape[0]
        and (left.shape[0], right.shape[1]) == weights.shape
    ):
        raise PacelineError(
            f"{name}: {list(left.shape)} · {list(right.shape)} cannot be added to {list(weights.shape)}"
        )
    for each in (right, left, weights):
        if each.dtype.name not in _FLOATS:
            raise PacelineError(f"{each.name}: LoRA cannot be merged into {each.dtype.name} weights")
    return base, LoraUpdate(left, right, scale)


def base_name(name: str) -> str:
    """The weights a LoRA tensor belongs to, by the naming of MindPet, MindFormers and PEFT.

    >>> base_name("layers.0.wq.mindpet_delta_lora_a"), base_name("layers.0.wq.lora_A.weight")
    ('layers.0.wq.weight', 'layers.0.wq.weight')
    """
    return name.replace("_lora_a", "").replace("mindpet_delta", "weight").replace(".lora_A", "")


def _is_lora_a(name: str) -> bool:
    is_optimizer_state = name.startswith(("adam_m.", "adam_v."))
    return not is_optimizer_state and ("lora_a" in name or "lora_A" in name)
