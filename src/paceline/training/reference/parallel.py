"""Where the ranks of a data-, tensor- and pipeline-parallel job are, and what each holds of the reference model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from paceline.core.errors import UsageError
from paceline.training.reference.shape import ModelShape, Shape

_BY_OUTPUT = ("query", "key", "value", "wide")
"""Linear layers that are sharded by output (Megatron's rule); output and narrow are sharded by input."""
_BY_INPUT = ("output", "narrow")


@dataclass(frozen=True)
class ParallelSizes:
    """Rank = (stage · data + data rank) · model + model rank, as in MindSpore."""

    data: int = 1
    model: int = 1
    stages: int = 1

    @property
    def ranks(self) -> int:
        return self.data * self.model * self.stages

    @property
    def is_data_only(self) -> bool:
        return self.model == self.stages == 1

    def place(self, rank: int) -> Place:
        stage, within = divmod(rank, self.data * self.model)
        data, model = divmod(within, self.model)
        return Place(self, stage, data, model)


@dataclass(frozen=True)
class Place:
    sizes: ParallelSizes
    stage: int
    data: int
    model: int

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.sizes.stages - 1

    def rank(self, *, stage: int | None = None, data: int | None = None, model: int | None = None) -> int:
        """Of the place that differs from this one in what is given."""
        stage, data = self.stage if stage is None else stage, self.data if data is None else data
        return (stage * self.sizes.data + data) * self.sizes.model + (self.model if model is None else model)


def check_sizes(shape: ModelShape, sizes: ParallelSizes) -> None:
    if shape.num_heads % sizes.model:
        raise UsageError(f"num_heads {shape.num_heads} is not divisible by model_parallel {sizes.model}")
    if shape.num_layers % sizes.stages:
        raise UsageError(f"num_layers {shape.num_layers} is not divisible by pipeline_stage {sizes.stages}")


def sharded_axis(name: str) -> int | None:
    """The axis of a parameter that tensor parallelism shards; None: every rank holds all of it."""
    layer, _, kind = name.rpartition(".")
    last = layer.rpartition(".")[2]
    if "lora" in name:
        return None
    if last in _BY_OUTPUT:
        return 0
    return 1 if last in _BY_INPUT and kind == "weight" else None


def stage_of(name: str, shape: ModelShape, stages: int) -> int:
    """The stage that holds a parameter: embeddings are on the first, the last norm on the last."""
    if name.startswith("blocks."):
        return int(name.split(".")[1]) * stages // shape.num_layers
    return stages - 1 if name.startswith("final_norm") else 0


def own_part(name: str, value: npt.NDArray[Any], full: Shape, place: Place) -> npt.NDArray[Any]:
    """This rank's slice of a full value; a slice stays as it is."""
    axis, count = sharded_axis(name), place.sizes.model
    if axis is None or count == 1 or value.shape != full:
        return value
    size = full[axis] // count
    cut = slice(place.model * size, (place.model + 1) * size)
    return value[cut] if axis == 0 else value[:, cut]
