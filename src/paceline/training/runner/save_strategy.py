"""Strategy files of the reference model: who would hold which part of which parameter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paceline.checkpoint.layout import Layout
from paceline.checkpoint.strategy import Strategy, write_strategy
from paceline.errors import UsageError
from paceline.training.reference.shape import ModelShape, Shape, parameters
from paceline.training.runner.config import ParallelConfig

_BY_COLUMNS = ("query", "key", "value", "wide")
"""Linear layers whose outputs are cut (Megatron's rule); the others' inputs are."""


def data_parallel(config: ParallelConfig, world_size: int) -> int:
    """Checked against the number of ranks."""
    if config.pipeline_stage != 1 or config.expert_parallel != 1:
        raise UsageError("the reference model knows no pipeline or experts", hint="parallel_config.pipeline_stage: 1")
    data = config.data_parallel or max(1, world_size // config.model_parallel)
    if data * config.model_parallel != world_size:
        raise UsageError(
            f"parallel_config: data_parallel {data} × model_parallel {config.model_parallel} is not the {world_size} "
            f"ranks there are",
            hint="leave data_parallel out, or start that many ranks",
        )
    return data


def save_strategy(path: Path, shape: ModelShape, data: int, model: int) -> None:
    layouts: Mapping[str, Layout] = {
        name: Layout((data, model), _axes(name, extents, model)) for name, extents in parameters(shape).items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(write_strategy(Strategy((layouts,)), merged=False, as_json=path.suffix == ".json"))


def _axes(name: str, shape: Shape, model: int) -> tuple[Shape, ...]:
    whole: tuple[Shape, ...] = tuple(() for _ in shape)
    layer, _, kind = name.rpartition(".")
    last = layer.rpartition(".")[2]
    if model == 1 or "lora" in name or "embedding" in name or "norm" in name:
        return whole
    if last in _BY_COLUMNS:
        return ((1,), *whole[1:])
    return ((), (1,)) if kind == "weight" else whole
