"""Parameters of the reference model: names, shapes and initial values, the same for every framework and rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple

import numpy as np
import numpy.typing as npt

Shape = Tuple[int, ...]
Weights = Dict[str, npt.NDArray[np.float32]]
INIT_STD = 0.02
"""Standard deviation of GPT-2's initial values."""


@dataclass(frozen=True)
class Lora:
    """Low-rank updates of some linear layers; all other weights are frozen."""

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ("query", "value")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


@dataclass(frozen=True)
class ModelShape:
    vocab_size: int = 256
    seq_length: int = 64
    hidden_size: int = 64
    num_layers: int = 2
    num_heads: int = 4
    dropout: float = 0.1
    lora: Lora | None = None


def parameters(shape: ModelShape) -> dict[str, Shape]:
    """Name → shape, in the order of the model; LoRA tensors follow the weights they belong to."""
    width = shape.hidden_size
    found: dict[str, Shape] = {
        "token_embedding.weight": (shape.vocab_size, width),
        "position_embedding.weight": (shape.seq_length, width),
    }
    for number in range(shape.num_layers):
        block = f"blocks.{number}"
        found |= _norm(f"{block}.norm1", width)
        for name in ("query", "key", "value", "output"):
            found |= _linear(f"{block}.attention.{name}", width, width, shape.lora)
        found |= _norm(f"{block}.norm2", width)
        found |= _linear(f"{block}.mlp.wide", width, 4 * width, shape.lora)
        found |= _linear(f"{block}.mlp.narrow", 4 * width, width, shape.lora)
    return found | _norm("final_norm", width)


def initial_values(shape: ModelShape, seed: int) -> Weights:
    """Drawn from one seed in a fixed order, so that ranks need not exchange weights."""
    random = np.random.default_rng(seed)
    return {name: _value(name, extents, random) for name, extents in parameters(shape).items()}


def is_lora(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name


def _value(name: str, shape: Shape, random: np.random.Generator) -> npt.NDArray[np.float32]:
    if name.endswith(".bias") or ".lora_B." in name:
        return np.zeros(shape, np.float32)
    if "norm" in name.split(".")[-2]:
        return np.ones(shape, np.float32)
    return (random.standard_normal(shape) * INIT_STD).astype(np.float32)


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _linear(name: str, inside: int, outside: int, lora: Lora | None) -> dict[str, Shape]:
    found = {f"{name}.weight": (outside, inside), f"{name}.bias": (outside,)}
    if lora and name.rpartition(".")[2] in lora.targets:
        found[f"{name}.lora_A.weight"] = (lora.rank, inside)
        found[f"{name}.lora_B.weight"] = (outside, lora.rank)
    return found
