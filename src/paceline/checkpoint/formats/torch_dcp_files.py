"""Plan the files of a torch DCP checkpoint: __RANK_0.distcp with one archive per slice, and .metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.checkpoint.formats.pickle_writer import Call, Global, Instance, Pairs, pickled
from paceline.checkpoint.formats.torch_archive import add_archive, torch_type
from paceline.checkpoint.formats.torch_dcp import METADATA, NamePath
from paceline.checkpoint.plan.file_plan import FilePlan, PlannedTensor
from paceline.checkpoint.tensors.tensor_slice import Shape, TensorSlice

_MODULE = "torch.distributed.checkpoint.metadata"
_STORAGE_INFO = Global("torch.distributed.checkpoint.filesystem", "_StorageInfo")
_STRIDED = Call(Global("torch.serialization", "_get_layout"), ("torch.strided",))
_CONTIGUOUS = Call(Global(_MODULE, "_MEM_FORMAT_ENCODING"), (0,))


@dataclass
class _Saved:
    """Slices of a tensor that have a place already."""

    tensor: PlannedTensor
    items: dict[TensorSlice, Instance] = field(default_factory=dict)


def plan_files(
    ranks: Iterable[tuple[int, Sequence[PlannedTensor]]],
    shapes: Mapping[str, Shape],
    objects: Mapping[str, PlannedTensor],
    paths: Mapping[str, NamePath],
) -> list[FilePlan]:
    """A slice that several ranks hold is saved by the first of them, as torch does; objects are saved by rank 0."""
    saved: dict[str, _Saved] = {}
    file_plans, objects_at = [], {}
    for rank, tensors in ranks:
        file_plan = FilePlan(f"__{rank}_0.distcp")
        for tensor in tensors:
            known = saved.setdefault(tensor.name, _Saved(tensor))
            holds_nothing = not tensor.bytes and 0 not in shapes[tensor.name]
            if tensor.slice not in known.items and not holds_nothing:
                start = file_plan.size
                add_archive(file_plan, tensor)
                known.items[tensor.slice] = _place(file_plan, start)
        if rank == 0:
            for name, content in objects.items():
                start = file_plan.size
                file_plan.add_tensor(content, 0, content.bytes)
                objects_at[name] = _place(file_plan, start)
        if file_plan.size:
            file_plans.append(file_plan)
    metadata = FilePlan(METADATA)
    metadata.add_bytes(_metadata(saved, shapes, objects_at, paths))
    return [*file_plans, metadata]


def _place(file_plan: FilePlan, start: int) -> Instance:
    state = {"relative_path": file_plan.key, "offset": start, "length": file_plan.size - start}
    return Instance(_STORAGE_INFO, state)


def _metadata(
    saved: Mapping[str, _Saved],
    shapes: Mapping[str, Shape],
    objects: Mapping[str, Instance],
    paths: Mapping[str, NamePath],
) -> bytes:
    state: dict[str, Any] = {name: _tensor(each, shapes[name]) for name, each in saved.items()}
    state.update({name: Instance(Global(_MODULE, "BytesStorageMetadata")) for name in objects})
    storage = [
        (_key(name, part.start, number), place)
        for name, each in saved.items()
        for number, (part, place) in enumerate(each.items.items())
    ]
    storage += [(_key(name, None, None), place) for name, place in objects.items()]
    content = {
        "state_dict_metadata": state,
        "planner_data": {name: paths.get(name, (name,)) for name in state},
        "storage_data": Pairs(storage),
        "storage_meta": None,
    }
    return pickled(Instance(Global(_MODULE, "Metadata"), content))


def _tensor(saved: _Saved, shape: Shape) -> Instance:
    properties = (Global("torch", torch_type(saved.tensor)), _STRIDED, False, _CONTIGUOUS, False)
    chunks = [
        Instance(Global(_MODULE, "ChunkStorageMetadata"), {"offsets": _size(part.start), "sizes": _size(part.shape)})
        for part in saved.items
    ]
    state = {
        "properties": Instance(Global(_MODULE, "TensorProperties"), properties),
        "size": _size(shape),
        "chunks": chunks,
    }
    return Instance(Global(_MODULE, "TensorStorageMetadata"), state)


def _key(name: str, start: Shape | None, number: int | None) -> Instance:
    offset = {} if start is None else {"offset": _size(start)}
    return Instance(Global(_MODULE, "MetadataIndex"), {"fqn": name, "index": number, **offset})


def _size(shape: Shape) -> Call:
    return Call(Global("torch", "Size"), (tuple(shape),))
