"""Open a checkpoint to read: rank directories with a strategy, MindFormers 2.0, torch DCP, full weights in files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from paceline.checkpoint.checkpoint_content import Checkpoint, Parameter, shorten_ranks
from paceline.checkpoint.file_names import Step, is_weights_file, rank_files, step_of
from paceline.checkpoint.formats import mindformers_v2, safetensors, torch_dcp
from paceline.checkpoint.formats.open_container import open_container
from paceline.checkpoint.open_dcp import open_dcp, open_hf_shards
from paceline.checkpoint.plan.file_plan import Piece
from paceline.checkpoint.select_step import select_step
from paceline.checkpoint.strategy.strategy import Strategy
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.tensor_files import FileListing
from paceline.checkpoint.tensors.dtypes import label
from paceline.checkpoint.tensors.tensor_index import Container, StoredTensor
from paceline.checkpoint.tensors.tensor_slice import Shape, TensorSlice, full_slice
from paceline.core.errors import FormatError, PacelineError, UsageError
from paceline.core.zip_strict import zip_strict

_MAX_INDEX_BYTES = 1 << 30
_MAX_SHARED = 0.25
"""Fraction of a file's tensors that may belong to other stages, as shared embeddings do."""


def open_checkpoint(
    listing: FileListing, strategy: Strategy | None = None, *, step: Step | None = None, deduplicated: bool = False
) -> Checkpoint:
    """Open rank directories with a strategy, a MindFormers 2.0 or torch DCP checkpoint, or full weights in files.

    `deduplicated`: saved without replicas (remove_redundancy); safetensors files carry this in their metadata.
    """
    if listing.single is not None:
        return _open_ranks(listing, {0: listing.single}, strategy, deduplicated=deduplicated)
    tracked = None
    if mindformers_v2.TRACKER in listing.items:
        tracked = listing.read_all(mindformers_v2.TRACKER, 64).decode("utf-8", "replace")
    folder = mindformers_v2.find(listing.items, tracked)
    if folder is not None:
        return _open_mindformers_v2(listing, folder)
    found = torch_dcp.find(listing.url, listing.items)
    if found is not None:
        return open_dcp(listing, *found)
    ranks = rank_files(listing.items)
    if ranks:
        selected = select_step(ranks, step)
        return _open_ranks(listing, selected.files, strategy, notes=selected.notes, deduplicated=deduplicated)
    return _open_full(listing, strategy, step)


# -- a file per rank -------------------------------------------------------------------------------------------------


def _open_ranks(
    listing: FileListing,
    files: Mapping[int, str],
    strategy: Strategy | None,
    *,
    notes: Sequence[str] = (),
    deduplicated: bool,
) -> Checkpoint:
    ranks: dict[int, Container | list[Container]] = {
        rank: open_container(listing.file(key)) for rank, key in files.items()
    }
    checkpoint = Checkpoint(listing.url, _one_format(ranks), ranks, {}, {}, strategy, list(notes))
    if strategy is not None:
        _check_ranks(checkpoint, strategy)
    for rank, container in checkpoint.containers:
        _add_tensors(checkpoint, rank, container)
    if strategy is not None and not checkpoint.parameters:
        raise PacelineError(
            f"{listing.url}: the strategy lists none of its tensors", hint="this strategy belongs to another model"
        )
    if strategy is not None:
        for rank, container in checkpoint.containers:
            _check_belongs(checkpoint, strategy, rank, container, deduplicated=deduplicated)
    return checkpoint


def _check_ranks(checkpoint: Checkpoint, strategy: Strategy) -> None:
    beyond = [rank for rank in checkpoint.ranks if rank >= strategy.ranks]
    if beyond:
        raise PacelineError(
            f"{checkpoint.url}: has rank {beyond[0]}, but the strategy has only {strategy.ranks} ranks",
            hint="this strategy belongs to another run",
        )
    missing = [rank for rank in range(strategy.ranks) if rank not in checkpoint.ranks]
    if missing:
        checkpoint.notes.append(
            f"the checkpoint of rank {shorten_ranks(missing)} is missing: only slices that other ranks hold are available"
        )


def _add_tensors(checkpoint: Checkpoint, rank: int, container: Container) -> None:
    strategy = checkpoint.strategy
    stage: Mapping[str, TensorLayout] = strategy.stages[strategy.stage_of(rank)] if strategy else {}
    slices = safetensors.held_slices(container.metadata, container.file.name)
    for name, stored in container.tensors.items():
        layout = stage.get(name)
        if layout is None and name in slices:
            _add_slice(checkpoint, rank, Piece(_held_slice(slices[name], stored, container), container, stored), slices)
            continue
        if layout is None and (strategy is not None or len(checkpoint.ranks) > 1):
            piece = Piece(full_slice(stored.shape), container, stored)
            checkpoint.unlisted.setdefault(name, {})[rank] = piece
            continue
        shape = layout.full_shape(name, stored.shape) if layout else stored.shape
        held = layout.rank_slice(name, rank % checkpoint.devices, shape) if layout else full_slice(shape)
        known = checkpoint.parameters.setdefault(
            name, Parameter(name, stored.dtype, shape, len(checkpoint.parameters), layout=layout)
        )
        if (known.dtype, known.shape) != (stored.dtype, shape):
            raise PacelineError(
                f"{container.file.name}: the full shape of {name} would be {label(stored.dtype)} {list(shape)},"
                f" but {label(known.dtype)} {list(known.shape)} according to other ranks",
                hint="the strategy does not match this checkpoint, or the files are from different runs",
            )
        known.copies.append((rank, Piece(held, container, stored)))


def _held_slice(held: tuple[Shape, Shape], stored: StoredTensor, container: Container) -> TensorSlice:
    full, start = held
    fits = len(full) == len(start) == len(stored.shape) and all(
        at + part <= extent for at, part, extent in zip_strict(start, stored.shape, full)
    )
    if not fits:
        raise FormatError(f"{container.file.name}: {stored.name} does not fit into {list(full)} at {list(start)}")
    return TensorSlice(start, stored.shape)


def _add_slice(checkpoint: Checkpoint, rank: int, piece: Piece, slices: Mapping[str, tuple[Shape, Shape]]) -> None:
    stored, name = piece.stored, piece.stored.name
    shape = slices[name][0]
    known = checkpoint.parameters.setdefault(name, Parameter(name, stored.dtype, shape, len(checkpoint.parameters)))
    if (known.dtype, known.shape) != (stored.dtype, shape):
        raise PacelineError(
            f"{piece.container.file.name}: {name} is {list(shape)} here and {list(known.shape)} elsewhere"
        )
    if piece.slice.size:
        known.copies.append((rank, piece))


def _check_belongs(
    checkpoint: Checkpoint, strategy: Strategy, rank: int, container: Container, *, deduplicated: bool
) -> None:
    """Shapes may match a wrong strategy by chance; which rank holds which tensor does not."""
    number = strategy.stage_of(rank)
    stage = strategy.stages[number]
    strangers = [name for name in container.tensors if name in strategy.names and name not in stage]
    if len(strangers) > _MAX_SHARED * len(container.tensors):
        raise PacelineError(
            f"{container.file.name}: holds {strangers[0]}, which the strategy does not place on stage {number}",
            hint="this strategy belongs to another run",
        )
    deduplicated = deduplicated or container.metadata.get("remove_redundancy") == "True"
    missing = [name for name in stage if name in checkpoint.parameters and name not in container.tensors]
    if missing and not deduplicated:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise PacelineError(
            f"{container.file.name}: {missing[0]}{more} not found, which the strategy places on rank {rank}",
            hint="this strategy belongs to another run; add --remove_redundancy if it was saved without replicas",
        )


# -- full weights ----------------------------------------------------------------------------------------------------


def _open_full(listing: FileListing, strategy: Strategy | None, step: Step | None) -> Checkpoint:
    if strategy is not None and strategy.ranks > 1:
        raise UsageError(
            f"{listing.url}: no directories rank_0, rank_1, … found",
            hint="a source strategy needs a directory per rank",
        )
    keys = _full_files(listing, step)
    containers = [open_container(listing.file(key)) for key in keys]
    if any(safetensors.SHARDING in container.metadata for container in containers):
        return open_hf_shards(listing.url, dict(zip_strict(keys, containers)))
    checkpoint = Checkpoint(listing.url, _one_format({0: containers}), {0: containers}, {}, {})
    for container in containers:
        for name, stored in container.tensors.items():
            if name in checkpoint.parameters:
                raise PacelineError(
                    f"{container.file.name}: another file also holds {name}",
                    hint="the directory may hold several checkpoints; pass a single one",
                )
            parameter = Parameter(name, stored.dtype, stored.shape, len(checkpoint.parameters))
            parameter.copies.append((0, Piece(full_slice(stored.shape), container, stored)))
            checkpoint.parameters[name] = parameter
    return checkpoint


def _full_files(listing: FileListing, step: Step | None) -> list[str]:
    """The files an index lists, or those of one step, or all files."""
    keys = [key for key in listing.items if "/" not in key and is_weights_file(key)]
    indexes = [key for key in listing.items if key.endswith("safetensors.index.json") or key == "param_name_map.json"]
    if indexes:
        listed = _indexed_files(listing, indexes[0])
        missing = sorted(listed - set(listing.items))
        if missing:
            raise PacelineError(f"{listing.url}/{indexes[0]}: lists {missing[0]}, which was not found")
        extra = {"hyper_param.safetensors"} & set(keys)
        return sorted(listed | extra)
    if not keys:
        raise UsageError(
            f"{listing.url}: no checkpoint found", hint="expected rank_0/…, *.ckpt, *.safetensors or *.pt files"
        )
    if len(keys) == 1:
        return keys
    if step is not None or any(step_of(key) for key in keys):
        return [select_step({0: keys}, step).files[0]]
    return sorted(keys)


def _indexed_files(listing: FileListing, key: str) -> set[str]:
    try:
        content = json.loads(listing.read_all(key, _MAX_INDEX_BYTES))
        found = content.get("weight_map", content)
        return {str(name) for name in found.values() if "/" not in str(name)}
    except (ValueError, AttributeError, TypeError) as error:
        raise FormatError(f"{listing.url}/{key}: cannot be read ({error})") from None


# -- MindFormers 2.0 -------------------------------------------------------------------------------------------------


def _open_mindformers_v2(listing: FileListing, folder: str) -> Checkpoint:
    text = listing.read_all(folder + mindformers_v2.METADATA, _MAX_INDEX_BYTES)
    slices, layouts = mindformers_v2.read(text, f"{listing.url}/{folder}{mindformers_v2.METADATA}")
    keys = sorted({folder + file for _, parts in slices.values() for _, file in parts})
    containers = {key: open_container(listing.file(key)) for key in keys if key in listing.items}
    if not containers:
        raise PacelineError(f"{listing.url}/{folder}: none of the files listed in {mindformers_v2.METADATA} was found")
    checkpoint = Checkpoint(listing.url, mindformers_v2.FORMAT, _by_rank(containers), {}, {})
    missing = [key for key in keys if key not in containers]
    checkpoint.notes += [f"{key} is missing: only slices that other files hold are available" for key in missing[:3]]
    if folder + mindformers_v2.COMMON in listing.items:
        checkpoint.common = listing.read_all(folder + mindformers_v2.COMMON, 1 << 20)
    for name, (shape, parts) in slices.items():
        copies = list(_v2_copies(name, [(held, folder + file) for held, file in parts], containers))
        if not copies:
            raise PacelineError(f"{listing.url}/{folder}: {name} not found in any file")
        dtype = copies[0][1].stored.dtype
        checkpoint.parameters[name] = Parameter(
            name, dtype, shape, len(checkpoint.parameters), copies, layouts.get(name)
        )
    return checkpoint


def _by_rank(containers: Mapping[str, Container]) -> dict[int, Container | list[Container]]:
    ranks: dict[int, list[Container]] = {}
    for key, container in containers.items():
        ranks.setdefault(mindformers_v2.rank_of(key) or 0, []).append(container)
    return dict(ranks)


def _v2_copies(
    name: str, parts: Iterable[tuple[TensorSlice, str]], containers: Mapping[str, Container]
) -> Iterator[tuple[int, Piece]]:
    for held, key in parts:
        container = containers.get(key)
        stored = container.tensors.get(name) if container else None
        if container is None or stored is None:
            continue  # without replicas, only one of the listed files holds it
        if stored.shape != held.shape:
            raise FormatError(
                f"{container.file.name}: {name} has shape {list(stored.shape)}, expected {list(held.shape)}"
            )
        yield mindformers_v2.rank_of(key) or 0, Piece(held, container, stored)


def _one_format(ranks: Mapping[int, Container | list[Container]]) -> str:
    found = {each.format for held in ranks.values() for each in (held if isinstance(held, list) else [held])}
    return found.pop() if len(found) == 1 else safetensors.FORMAT
