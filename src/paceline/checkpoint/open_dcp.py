"""Open what torch's distributed checkpointing saved, as DCP or as safetensors: it says itself which file holds which slice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from paceline.checkpoint.checkpoint_content import Checkpoint, Parameter
from paceline.checkpoint.formats import safetensors, torch_dcp
from paceline.checkpoint.plan.file_plan import Piece, PlannedTensor
from paceline.checkpoint.tensor_files import FileListing
from paceline.checkpoint.tensors.dtypes import BYTES
from paceline.checkpoint.tensors.tensor_index import Container, StoredTensor
from paceline.checkpoint.tensors.tensor_slice import TensorSlice, full_slice
from paceline.core.errors import FormatError, PacelineError
from paceline.core.zip_strict import zip_strict

_SHARD = re.compile(r"shard-(\d{1,7})-")


def open_dcp(listing: FileListing, folder: str, notes: Sequence[str]) -> Checkpoint:
    where = f"{listing.url}/{folder}{torch_dcp.METADATA}"
    index = torch_dcp.read(listing.read_all(folder + torch_dcp.METADATA, torch_dcp.MAX_METADATA_BYTES), where)
    containers, tensors, missing = _dcp_files(listing, folder, index)
    if not containers:
        raise PacelineError(f"{where}: none of the files that it lists was found")
    ranks: dict[int, list[Container]] = {}
    for name, container in containers.items():
        ranks.setdefault(torch_dcp.rank_of(name), []).append(container)
    checkpoint = Checkpoint(listing.url, torch_dcp.FORMAT, dict(ranks), {}, {}, notes=list(notes), paths=index.paths)
    checkpoint.notes += [f"{name} is missing: only slices that other files hold are available" for name in missing[:3]]
    for name, tensor in index.tensors.items():
        parameter = Parameter(name, tensor.dtype, tensor.shape, len(checkpoint.parameters))
        for item in tensor.items:
            if item.slice is None or item.file not in containers:
                continue
            container, held = containers[item.file], tensors[item.file]
            stored = torch_dcp.stored_tensor(container.file, name, tensor, item)
            held[name if name not in held else f"{name}{item.slice}"] = stored
            if item.slice.size or not full_slice(tensor.shape).size:
                parameter.copies.append((torch_dcp.rank_of(item.file), Piece(item.slice, container, stored)))
        checkpoint.parameters[name] = parameter
    for name, item in index.objects.items():
        if item.file in containers:
            checkpoint.objects[name] = _bytes_of(name, item, containers[item.file], len(checkpoint.parameters))
    return checkpoint


def open_hf_shards(url: str, containers: Mapping[str, Container]) -> Checkpoint:
    """safetensors that every rank saved with HuggingFaceStorageWriter; full shapes follow from the slices."""
    ranks: dict[int, list[Container]] = {}
    copies: dict[str, list[tuple[int, Piece]]] = {}
    for key, container in containers.items():
        match = _SHARD.match(key)
        rank = int(match[1]) - 1 if match else 0
        ranks.setdefault(rank, []).append(container)
        offsets = safetensors.saved_offsets(container.metadata, container.file.name)
        for name, stored in container.tensors.items():
            start = offsets.get(name, (0,) * len(stored.shape))
            if len(start) != len(stored.shape):
                raise FormatError(f"{container.file.name}: {name} has shape {list(stored.shape)} at {list(start)}")
            copies.setdefault(name, []).append((rank, Piece(TensorSlice(start, stored.shape), container, stored)))
    checkpoint = Checkpoint(url, safetensors.FORMAT, dict(ranks), {}, {})
    for name, found in copies.items():
        if len({(piece.stored.dtype, len(piece.slice.shape)) for _, piece in found}) > 1:
            raise PacelineError(f"{url}: the files disagree about {name}")
        ends = [[a + n for a, n in zip_strict(piece.slice.start, piece.slice.shape)] for _, piece in found]
        shape = tuple(max(extents) for extents in zip_strict(*ends))
        kept = [(rank, piece) for rank, piece in found if piece.slice.size or 0 in shape]
        order = len(checkpoint.parameters)
        checkpoint.parameters[name] = Parameter(name, found[0][1].stored.dtype, shape, order, kept)
    return checkpoint


def _dcp_files(
    listing: FileListing, folder: str, index: torch_dcp.DcpIndex
) -> tuple[dict[str, Container], dict[str, dict[str, StoredTensor]], list[str]]:
    """Files that .metadata lists: those found, the (still empty) tensors of each, and those missing."""
    items = [item for tensor in index.tensors.values() for item in tensor.items]
    names = sorted({item.file for item in (*items, *index.objects.values())})
    missing = [name for name in names if folder + name not in listing.items]
    tensors: dict[str, dict[str, StoredTensor]] = {name: {} for name in names if name not in missing}
    containers = {
        name: Container(listing.file(folder + name), torch_dcp.FORMAT, held) for name, held in tensors.items()
    }
    return containers, tensors, missing


def _bytes_of(name: str, item: torch_dcp.StoredItem, container: Container, order: int) -> PlannedTensor:
    if item.start + item.length > container.file.size:
        raise FormatError(f"{container.file.name}: {name} ends beyond the end of the file", file=container.file.path)
    kind, full = BYTES, full_slice((item.length,))
    stored = StoredTensor(name, kind, full.shape, ((item.start, item.length),) if item.length else ())
    return PlannedTensor(name, kind, full, [Piece(full, container, stored)], order)
