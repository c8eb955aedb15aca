"""Write strategy files of the reference model: which rank holds which slice of which parameter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.core.errors import UsageError
from paceline.training.reference.parallel import ParallelSizes, check_sizes, sharded_axis, stage_of
from paceline.training.reference.shape import ModelShape, Shape, parameters
from paceline.training.runner.config import ParallelConfig

_MOMENTS = ("adam_m", "adam_v")
"""The optimizer's state of a parameter is sharded as the parameter."""


def parallel_sizes(config: ParallelConfig, world_size: int) -> ParallelSizes:
    """Checked against the number of ranks."""
    if config.expert_parallel != 1:
        raise UsageError("the reference model has no experts", hint="parallel_config.expert_parallel: 1")
    model, stages = config.model_parallel, config.pipeline_stage
    data = config.data_parallel or max(1, world_size // (model * stages))
    if data * model * stages != world_size:
        raise UsageError(
            f"parallel_config: data_parallel {data} × model_parallel {model} × pipeline_stage {stages} does not equal the "
            f"{world_size} ranks",
            hint="omit data_parallel, or start that many ranks",
        )
    return ParallelSizes(data, model, stages)


def model_strategy(shape: ModelShape, sizes: ParallelSizes) -> Strategy:
    check_sizes(shape, sizes)
    stages: list[dict[str, TensorLayout]] = [{} for _ in range(sizes.stages)]
    for name, extents in parameters(shape).items():
        layout = TensorLayout((sizes.data, sizes.model), _axes(name, extents, sizes.model))
        held = stages[stage_of(name, shape, sizes.stages)]
        held[name] = layout
        if sizes.model > 1:
            held.update({f"{kind}.{name}": layout for kind in _MOMENTS})
    return Strategy(tuple(stages))


def write_strategy_file(path: Path, shape: ModelShape, sizes: ParallelSizes, rank: int) -> None:
    """A file of one rank has the parameters of its stage."""
    stage = sizes.place(rank).stage
    layouts: Mapping[str, TensorLayout] = model_strategy(shape, sizes).stages[stage]
    path.parent.mkdir(parents=True, exist_ok=True)
    as_json = path.suffix == ".json"
    path.write_bytes(encode_strategy(Strategy((layouts,)), merged=False, as_json=as_json, stage=stage))


def _axes(name: str, shape: Shape, model: int) -> tuple[Shape, ...]:
    axis = sharded_axis(name) if model > 1 else None
    return tuple((1,) if number == axis else () for number in range(len(shape)))
