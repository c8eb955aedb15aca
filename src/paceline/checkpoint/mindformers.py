"""MindFormers' checkpoint 2.0: safetensors files of all ranks in one directory, and metadata.json that places them.

    iteration_00000010/{prefix}-model-0000000-0000004.safetensors, …-opt-…, common.json, metadata.json
    latest_checkpointed_iteration.txt      beside the iterations, written last

A slice is known by its number in the grid that "axis_fragmentations" cuts the parameter into, row by row.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from paceline.checkpoint.box import Box, Shape
from paceline.checkpoint.dtypes import label
from paceline.checkpoint.frame import Frame, Wanted
from paceline.checkpoint.layout import Layout
from paceline.checkpoint.strategy_file import make_layout, tensor_map
from paceline.errors import FormatError, PacelineError

FORMAT = "mindformers"
METADATA, COMMON, TRACKER = "metadata.json", "common.json", "latest_checkpointed_iteration.txt"
_ITERATION = re.compile(r"iteration_(\d{8,})/")
_NAME = re.compile(r".*-(\d{7})-(\d{7})\.safetensors")
Slices = dict[str, tuple[Shape, list[tuple[Box, str]]]]
"""Parameter → (full shape, [(part, file)])"""


def find(keys: Collection[str], tracked: str | None) -> str | None:
    """The directory (with a slash, or "") whose metadata.json counts; None when there is none."""
    if METADATA in keys:
        return ""
    if tracked is not None:
        if not tracked.strip().isdecimal():
            raise FormatError(f"{TRACKER}: {tracked[:40]!r} is no number")
        folder = f"iteration_{int(tracked):08d}/"
        if folder + METADATA not in keys:
            raise PacelineError(f"{TRACKER} names {folder[:-1]}, which has no {METADATA}")
        return folder
    folders = {match[0] for key in keys if (match := _ITERATION.match(key)) and match[0] + METADATA in keys}
    return max(folders, key=lambda folder: int(folder[10:-1]), default=None)


def rank_of(key: str) -> int | None:
    match = _NAME.fullmatch(key)
    return int(match[1]) if match else None


def read(text: bytes, name: str) -> tuple[Slices, dict[str, Layout]]:
    """All slices by file, and the layouts where they are told."""
    try:
        content = json.loads(text)
        layouts = {
            param: make_layout(told["device_matrix"], told["tensor_map"])
            for param, meta in content["state_dict_metadata"].items()
            if (told := meta.get("layout"))
        }
        return _slices(content), layouts
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, SyntaxError, RecursionError, MemoryError) as error:
        raise FormatError(f"{name}: cannot be read ({type(error).__name__}: {str(error)[:80]})") from None


def _slices(content: Any) -> Slices:
    files: dict[tuple[str, Shape], list[str]] = {}
    for shard, stored in content["storage_data"].items():
        param, offset = ast.literal_eval(shard)
        files[str(param), tuple(offset)] = [entry["file_name"] for entry in stored]
    found: Slices = {}
    for param, meta in content["state_dict_metadata"].items():
        shape = tuple(map(int, meta["global_shape"] or ()))
        cuts = tuple(map(int, meta["axis_fragmentations"] or (1,) * len(shape)))
        if len(cuts) != len(shape) or any(cut < 1 or extent % cut for extent, cut in zip(shape, cuts, strict=True)):
            raise FormatError(f"{param}: {list(shape)} cannot be cut into {list(cuts)}")
        parts = []
        for chunk in meta["chunk"]:
            offset = tuple(map(int, chunk["global_offset"]))
            box = _box(param, shape, cuts, offset)
            if tuple(chunk["local_shape"] or ()) != box.shape:
                raise FormatError(f"{param}: a part of shape {chunk['local_shape']}, {list(box.shape)} expected")
            parts += [(box, file) for file in files.get((param, offset), ())]
        found[param] = shape, parts
    return found


def _box(param: str, shape: Shape, cuts: Shape, offset: Shape) -> Box:
    part = tuple(extent // cut for extent, cut in zip(shape, cuts, strict=True))
    if len(offset) != 1:
        if len(offset) != len(shape):
            raise FormatError(f"{param}: offset {list(offset)} of a tensor with {len(shape)} axes")
        return Box(offset, part)
    number, index = offset[0], []
    for cut in reversed(cuts):
        number, place = divmod(number, cut)
        index.append(place)
    if number:
        raise FormatError(f"{param}: there is no slice {offset[0]}")
    return Box(tuple(i * n for i, n in zip(reversed(index), part, strict=True)), part)


def file_name(prefix: str, rank: int, ranks: int, *, optimizer: bool) -> str:
    return f"{f'{prefix}-' if prefix else ''}{'opt' if optimizer else 'model'}-{rank:07d}-{ranks:07d}.safetensors"


def is_optimizer(name: str) -> bool:
    return name.startswith(("adam_m.", "adam_v.", "moments.", "moment1.", "moment2.", "exp_avg"))


def metadata(frames: Iterable[tuple[int, Frame, Iterable[Wanted]]], shapes: Mapping[str, Shape],
             layouts: Mapping[str, Layout | None]) -> bytes:  # fmt: skip
    """metadata.json of files (rank, file, its tensors)."""
    told: dict[str, Any] = {}
    storage: dict[str, list[dict[str, Any]]] = {}
    for rank, frame, tensors in frames:
        for tensor in tensors:
            shape = shapes[tensor.name]
            entry = told.setdefault(tensor.name, _entry(tensor, shape, layouts.get(tensor.name)))
            offset = (_slice_number(tensor.box, shape),)
            chunk = {"global_offset": list(offset), "local_shape": list(tensor.shape)}
            if chunk not in entry["chunk"]:
                entry["chunk"].append(chunk)
            shard = str((tensor.name, offset))
            storage.setdefault(shard, []).append({"file_name": frame.key, "storage_rank": rank})
    for stored in storage.values():
        group = [each["storage_rank"] for each in stored]
        for each in stored:
            each["rank_group"] = group
    content = {"state_dict_metadata": told, "storage_data": storage}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _entry(tensor: Wanted, shape: Shape, layout: Layout | None) -> dict[str, Any]:
    cuts = [extent // part if part else 1 for extent, part in zip(shape, tensor.shape, strict=True)]
    properties = {"dtype": label(tensor.dtype), "replica_id": 0, "allow_shape_mismatch": False, "allow_to_save": True}
    return {"properties": properties, "global_shape": list(shape), "axis_fragmentations": cuts,
            "layout": _told_layout(layout) if layout else None, "chunk": []}  # fmt: skip


def _told_layout(layout: Layout) -> dict[str, Any]:
    return {
        "device_matrix": list(layout.devices), "tensor_map": tensor_map(layout), "interleaved_parallel": False,
        "alias_name": [f"axis{number}" for number in range(len(layout.devices))],
        "rank_list": list(range(layout.device_count)),
    }  # fmt: skip


def _slice_number(box: Box, shape: Shape) -> int:
    number = 0
    for start, part, extent in zip(box.start, box.shape, shape, strict=True):
        number = number * (extent // part if part else 1) + (start // part if part else 0)
    return number
