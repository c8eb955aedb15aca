"""TrainingState from a torch model and optimizer; load a checkpoint into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paceline.training.ranks import Ranks
from paceline.training.training_state import TrainingState

if TYPE_CHECKING:
    import torch


def torch_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, **fields: Any) -> TrainingState:
    """Weights by name, optimizer state as {state}.{parameter} (exp_avg.head.weight); `fields`: other TrainingState fields."""
    rank, world = rank_and_world()
    names = {id(parameter): name for name, parameter in unwrap(model).named_parameters()}
    trainable = {name for name, parameter in unwrap(model).named_parameters() if parameter.requires_grad}
    fields = {"rank": rank, "world_size": world, **fields}
    return TrainingState(
        weights=lambda: dict(unwrap(model).state_dict()),
        optimizer_state=lambda: _optimizer_state(optimizer, names) if optimizer is not None else {},
        trainable=trainable.__contains__,
        sum_over_ranks=_sum_over_ranks(model),
        **fields,
    )


def rank_and_world() -> tuple[int, int]:
    """What torch.distributed says; not every launcher sets the variables (Lightning, torch.multiprocessing.spawn)."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    ranks = Ranks.from_environment()
    return ranks.rank, ranks.world_size


def load_torch_state(
    values: Mapping[str, Any], model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Load the arrays of a checkpoint that was saved with torch_state into model and optimizer."""
    import torch

    def tensor(value: Any) -> torch.Tensor:
        return torch.tensor(value) if not isinstance(value, torch.Tensor) else value

    own = unwrap(model).state_dict()
    unwrap(model).load_state_dict({name: tensor(values[name]).reshape(own[name].shape) for name in own})
    if optimizer is None:
        return
    state = optimizer.state_dict()
    numbers = {id(p): n for n, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    for name, parameter in unwrap(model).named_parameters():
        suffix = f".{name}"
        found = {key[: -len(suffix)]: value for key, value in values.items() if key.endswith(suffix) and key not in own}
        if found and id(parameter) in numbers:
            state["state"][numbers[id(parameter)]] = {key: tensor(value) for key, value in found.items()}
    optimizer.load_state_dict(state)


def _sum_over_ranks(model: torch.nn.Module) -> Callable[[Sequence[float]], Sequence[float]] | None:
    from torch import distributed, tensor

    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    # On the device of the weights: NCCL and HCCL cannot use other memory.
    device = next((parameter.device for parameter in model.parameters()), None)

    def summed(values: Sequence[float]) -> Sequence[float]:
        numbers = tensor(values, device=device)
        distributed.all_reduce(numbers)
        return [float(each) for each in numbers.tolist()]

    return summed


def _optimizer_state(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, Any]:
    found = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for key, value in optimizer.state.get(parameter, {}).items():
                if value is not None:
                    found[f"{key}.{names[id(parameter)]}"] = value
    return found


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """The model inside DistributedDataParallel."""
    inner = getattr(model, "module", None)
    return inner if inner is not None and type(model).__name__.endswith("DataParallel") else model
