"""Write strategy files of the reference model: which rank holds which slice of which parameter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.core.errors import UsageError
from paceline.training.reference.shape import ModelShape, Shape, parameters
from paceline.training.runner.config import ParallelConfig

_BY_COLUMNS = ("query", "key", "value", "wide")
"""Linear layers that are sharded by output (Megatron's rule); the others are sharded by input."""


def data_parallel(config: ParallelConfig, world_size: int) -> int:
    """Data-parallel size, checked against the number of ranks."""
    if config.pipeline_stage != 1 or config.expert_parallel != 1:
        raise UsageError(
            "the reference model supports neither pipelines nor experts", hint="parallel_config.pipeline_stage: 1"
        )
    data = config.data_parallel or max(1, world_size // config.model_parallel)
    if data * config.model_parallel != world_size:
        raise UsageError(
            f"parallel_config: data_parallel {data} × model_parallel {config.model_parallel} does not equal the "
            f"{world_size} ranks",
            hint="omit data_parallel, or start that many ranks",
        )
    return data


def write_strategy_file(path: Path, shape: ModelShape, data: int, model: int) -> None:
    layouts: Mapping[str, TensorLayout] = {
        name: TensorLayout((data, model), _axes(name, extents, model)) for name, extents in parameters(shape).items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_strategy(Strategy((layouts,)), merged=False, as_json=path.suffix == ".json"))


def _axes(name: str, shape: Shape, model: int) -> tuple[Shape, ...]:
    whole: tuple[Shape, ...] = tuple(() for _ in shape)
    layer, _, kind = name.rpartition(".")
    last = layer.rpartition(".")[2]
    if model == 1 or "lora" in name or "embedding" in name or "norm" in name:
        return whole
    if last in _BY_COLUMNS:
        return ((1,), *whole[1:])
    return ((), (1,)) if kind == "weight" else whole
