"""Resume a torch model and its optimizer from a checkpoint that another number of ranks, or another layout, saved.

Each rank reads only the slices that it holds itself, from the files of all ranks that saved (saved_copies.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.checkpoint.checkpoint_content import Checkpoint
from paceline.checkpoint.plan.read_tensor import Array, read_tensor
from paceline.checkpoint.resume.resume_point import ResumePoint, find_resume_point
from paceline.checkpoint.source_checkpoint import open_checkpoint
from paceline.checkpoint.tensor_files import open_listing
from paceline.checkpoint.tensors.dtypes import label
from paceline.checkpoint.tensors.tensor_slice import full_slice
from paceline.core.errors import PacelineError
from paceline.training.checkpointing.saved_copies import SavedCopies
from paceline.training.checkpointing.shards import is_sharded, local_shard
from paceline.training.checkpointing.torch_state import rank_and_world, unwrap

if TYPE_CHECKING:
    import torch


def resume_torch(
    location: str | Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> ResumePoint:
    """Load the newest complete checkpoint below a directory or bucket; every rank calls it. Returns where training was.

    >>> point = resume_torch("output/checkpoint", model, optimizer)                      # doctest: +SKIP
    >>> state = torch_state(model, optimizer, step=point.global_step)                    # doctest: +SKIP
    """
    import torch

    point = find_resume_point(location)
    with open_listing(point.location) as listing:
        listing.items = {key: listing.items[key] for keys in point.files.values() for key in keys}
        copies = SavedCopies(open_checkpoint(listing), *rank_and_world())
        buffers = {name for name, _ in unwrap(model).named_buffers()}
        with torch.no_grad():
            for name, target in unwrap(model).state_dict().items():
                _read_into(target, name, copies, must_agree=name not in buffers)
            if optimizer is not None:
                _load_optimizer(optimizer, unwrap(model), copies)
    return point


def _load_optimizer(optimizer: torch.optim.Optimizer, model: torch.nn.Module, copies: SavedCopies) -> None:
    """The moments have the layout of their parameter; what has another shape (a step count) is held in full."""
    import torch

    checkpoint = copies.checkpoint
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    saved = _keys_by_parameter(checkpoint, set(names.values()))
    for parameter in (each for group in optimizer.param_groups for each in group["params"]):
        name = names[id(parameter)]
        for key in saved.get(name, ()):
            stored = f"{key}.{name}"
            if checkpoint.shapes[stored] == tuple(parameter.shape):
                value = torch.zeros_like(parameter, dtype=_torch_dtype(checkpoint, stored))
            else:
                value = torch.zeros(checkpoint.shapes[stored], dtype=_torch_dtype(checkpoint, stored))
            _read_into(value, stored, copies, must_agree=True)
            optimizer.state[parameter][key] = value


def _keys_by_parameter(checkpoint: Checkpoint, names: set[str]) -> Mapping[str, list[str]]:
    """Parameter → states saved of it ("exp_avg"): {state}.{parameter}."""
    found: dict[str, list[str]] = {}
    for stored in checkpoint.shapes:
        key, _, name = stored.partition(".")
        if name in names and stored not in names:
            found.setdefault(name, []).append(key)
    return found


def _read_into(target: torch.Tensor, name: str, copies: SavedCopies, *, must_agree: bool) -> None:
    checkpoint = copies.checkpoint
    shard = local_shard(name, target) if is_sharded(target) else None
    data, wanted = (target, full_slice(tuple(target.shape))) if shard is None else (shard.data, shard.slice)
    shape = checkpoint.shapes.get(name)
    if shape is None:
        raise PacelineError(f"{checkpoint.url}: {name} not found", hint="this checkpoint belongs to another model")
    if shape != tuple(target.shape):
        raise PacelineError(f"{name} is {list(shape)} in the checkpoint and {list(target.shape)} in the model")
    if wanted.size:
        planned = copies.planned(name, wanted, must_agree=must_agree)
        data.copy_(
            _decoded(read_tensor(planned, 0, planned.bytes), _torch_dtype(checkpoint, name)).reshape(wanted.shape)
        )


def _decoded(data: Array, dtype: torch.dtype) -> torch.Tensor:
    import torch

    return torch.frombuffer(bytearray(data), dtype=dtype)


def _torch_dtype(checkpoint: Checkpoint, name: str) -> torch.dtype:
    import torch

    parameter = checkpoint.parameters.get(name)
    dtype = parameter.dtype if parameter is not None else next(iter(checkpoint.unlisted[name].values())).stored.dtype
    found = getattr(torch, label(dtype).lower(), None)
    if not isinstance(found, torch.dtype):
        raise PacelineError(f"{name}: torch has no type {label(dtype)}")
    return found
