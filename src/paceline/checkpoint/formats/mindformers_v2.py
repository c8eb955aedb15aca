"""MindFormers 2.0 checkpoints: safetensors files of all ranks in one directory; metadata.json says what they hold.

    iteration_00000010/{prefix}-model-0000000-0000004.safetensors, …-opt-…, common.json, metadata.json
    latest_checkpointed_iteration.txt      next to the iterations, written last

A slice is identified by its row-major number in the grid into which "axis_fragmentations" divides the parameter.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Dict, List, Tuple

from paceline.checkpoint.plan.file_plan import FilePlan, PlannedTensor
from paceline.checkpoint.strategy.strategy_file import make_layout, tensor_map
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.tensors.dtypes import label
from paceline.checkpoint.tensors.tensor_slice import Shape, TensorSlice
from paceline.core.errors import FormatError, PacelineError
from paceline.core.zip_strict import zip_strict

FORMAT = "mindformers"
METADATA, COMMON, TRACKER = "metadata.json", "common.json", "latest_checkpointed_iteration.txt"
_ITERATION = re.compile(r"iteration_(\d{8,})/")
_NAME = re.compile(r".*-(\d{7})-(\d{7})\.safetensors")
ParameterSlices = Dict[str, Tuple[Shape, List[Tuple[TensorSlice, str]]]]
"""Parameter → (full shape, [(slice, file)])"""


def find(keys: Collection[str], tracked: str | None) -> str | None:
    """The directory (with a slash, or "") whose metadata.json to read; None: not a MindFormers 2.0 checkpoint."""
    if METADATA in keys:
        return ""
    if tracked is not None:
        if not tracked.strip().isdecimal():
            raise FormatError(f"{TRACKER}: {tracked[:40]!r} is not a number")
        folder = f"iteration_{int(tracked):08d}/"
        if folder + METADATA not in keys:
            raise PacelineError(f"{TRACKER} names {folder[:-1]}, where {METADATA} was not found")
        return folder
    folders = {match[0] for key in keys if (match := _ITERATION.match(key)) and match[0] + METADATA in keys}
    return max(folders, key=lambda folder: int(folder[10:-1]), default=None)


def rank_of(key: str) -> int | None:
    match = _NAME.fullmatch(key)
    return int(match[1]) if match else None


def read(text: bytes, name: str) -> tuple[ParameterSlices, dict[str, TensorLayout]]:
    """Slices and files of every parameter, and its layout if metadata.json contains one."""
    try:
        content = json.loads(text)
        layouts = {
            param: make_layout(layout["device_matrix"], layout["tensor_map"])
            for param, meta in content["state_dict_metadata"].items()
            if (layout := meta.get("layout"))
        }
        return _slices(content), layouts
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, SyntaxError, RecursionError, MemoryError) as error:
        raise FormatError(f"{name}: cannot be read ({type(error).__name__}: {str(error)[:80]})") from None


def _slices(content: Any) -> ParameterSlices:
    files: dict[tuple[str, Shape], list[str]] = {}
    for shard, stored in content["storage_data"].items():
        param, offset = ast.literal_eval(shard)
        files[str(param), tuple(offset)] = [entry["file_name"] for entry in stored]
    found: ParameterSlices = {}
    for param, meta in content["state_dict_metadata"].items():
        shape = tuple(map(int, meta["global_shape"] or ()))
        cuts = tuple(map(int, meta["axis_fragmentations"] or (1,) * len(shape)))
        if len(cuts) != len(shape) or any(cut < 1 or extent % cut for extent, cut in zip_strict(shape, cuts)):
            raise FormatError(f"{param}: {list(shape)} cannot be split into {list(cuts)}")
        parts = []
        for chunk in meta["chunk"]:
            offset = tuple(map(int, chunk["global_offset"]))
            tensor_slice = _grid_slice(param, shape, cuts, offset)
            if tuple(chunk["local_shape"] or ()) != tensor_slice.shape:
                raise FormatError(
                    f"{param}: a slice has shape {chunk['local_shape']}, expected {list(tensor_slice.shape)}"
                )
            parts += [(tensor_slice, file) for file in files.get((param, offset), ())]
        found[param] = shape, parts
    return found


def _grid_slice(param: str, shape: Shape, cuts: Shape, offset: Shape) -> TensorSlice:
    part = tuple(extent // cut for extent, cut in zip_strict(shape, cuts))
    if len(offset) != 1:
        if len(offset) != len(shape):
            raise FormatError(f"{param}: offset {list(offset)} does not match its {len(shape)} axes")
        return TensorSlice(offset, part)
    number, index = offset[0], []
    for cut in reversed(cuts):
        number, position = divmod(number, cut)
        index.append(position)
    if number:
        raise FormatError(f"{param}: slice {offset[0]} does not exist")
    return TensorSlice(tuple(i * n for i, n in zip_strict(reversed(index), part)), part)


def file_name(prefix: str, rank: int, ranks: int, *, optimizer: bool) -> str:
    return f"{f'{prefix}-' if prefix else ''}{'opt' if optimizer else 'model'}-{rank:07d}-{ranks:07d}.safetensors"


def is_optimizer(name: str) -> bool:
    return name.startswith(("adam_m.", "adam_v.", "moments.", "moment1.", "moment2.", "exp_avg"))


def metadata(
    file_plans: Iterable[tuple[int, FilePlan, Iterable[PlannedTensor]]],
    shapes: Mapping[str, Shape],
    layouts: Mapping[str, TensorLayout | None],
) -> bytes:
    """metadata.json for these files: (rank, file, its tensors)."""
    entries: dict[str, Any] = {}
    storage: dict[str, list[dict[str, Any]]] = {}
    for rank, file_plan, tensors in file_plans:
        for tensor in tensors:
            shape = shapes[tensor.name]
            entry = entries.setdefault(tensor.name, _entry(tensor, shape, layouts.get(tensor.name)))
            offset = (_slice_number(tensor.slice, shape),)
            chunk = {"global_offset": list(offset), "local_shape": list(tensor.shape)}
            if chunk not in entry["chunk"]:
                entry["chunk"].append(chunk)
            shard = str((tensor.name, offset))
            storage.setdefault(shard, []).append({"file_name": file_plan.key, "storage_rank": rank})
    for stored in storage.values():
        group = [each["storage_rank"] for each in stored]
        for each in stored:
            each["rank_group"] = group
    content = {"state_dict_metadata": entries, "storage_data": storage}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _entry(tensor: PlannedTensor, shape: Shape, layout: TensorLayout | None) -> dict[str, Any]:
    cuts = [extent // part if part else 1 for extent, part in zip_strict(shape, tensor.shape)]
    properties = {"dtype": label(tensor.dtype), "replica_id": 0, "allow_shape_mismatch": False, "allow_to_save": True}
    return {
        "properties": properties,
        "global_shape": list(shape),
        "axis_fragmentations": cuts,
        "layout": _layout_entry(layout) if layout else None,
        "chunk": [],
    }


def _layout_entry(layout: TensorLayout) -> dict[str, Any]:
    return {
        "device_matrix": list(layout.devices),
        "tensor_map": tensor_map(layout),
        "interleaved_parallel": False,
        "alias_name": [f"axis{number}" for number in range(len(layout.devices))],
        "rank_list": list(range(layout.device_count)),
    }


def _slice_number(tensor_slice: TensorSlice, shape: Shape) -> int:
    number = 0
    for start, part, extent in zip_strict(tensor_slice.start, tensor_slice.shape, shape):
        number = number * (extent // part if part else 1) + (start // part if part else 0)
    return number
