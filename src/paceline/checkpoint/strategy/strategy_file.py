"""Strategy files as MindSpore writes them: protobuf (ParallelStrategyMap), and the same as JSON.

    ParallelStrategyMap    1 current_stage, 2 items {1 operator, 2 {1 stage, 2 cuts {1 dims}}}, 3 layouts
    layout                 1 parameter, 2 {1 device matrix {1 dims}, 2 tensor map {1 dims}, 3 split shape, 4 offsets,
                           5 field, 6 optimizer shard step, 7 optimizer shard size}

A tensor map counts device axes from the right, -1 for none. If several device axes shard one tensor axis, there is one
tensor map per tensor axis.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.tensors.tensor_slice import Shape
from paceline.core.errors import FormatError
from paceline.core.protobuf import bytes_field, fields, integer, message, number_field, read_varint, text

_MAX_AXES = 16


@dataclass(frozen=True)
class Operator:
    """How an operator's inputs are sharded; copied unchanged, only its stage is used."""

    name: str
    stage: int
    cuts: tuple[Shape, ...]


@dataclass(frozen=True)
class StrategyFile:
    operators: tuple[Operator, ...]
    layouts: dict[str, TensorLayout] = field(default_factory=dict)


def decode(data: bytes, name: str) -> StrategyFile:
    """Decode a strategy file; JSON is recognised by its first brace."""
    try:
        return _from_json(data) if data.lstrip()[:1] == b"{" else _from_protobuf(memoryview(data))
    except FormatError as error:
        raise FormatError(f"{name}: not a strategy file, or damaged: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FormatError(f"{name}: not a strategy file, or damaged ({type(error).__name__}: {error})") from None


def encode(file: StrategyFile, *, as_json: bool) -> bytes:
    return _to_json(file) if as_json else _to_protobuf(file)


# -- protobuf --------------------------------------------------------------------------------------------------------


def _from_protobuf(data: memoryview) -> StrategyFile:
    operators: list[Operator] = []
    layouts: dict[str, TensorLayout] = {}
    for number, value in fields(data):
        if number == 2:
            operators.append(_operator(message(value)))
        elif number == 3:
            name, layout = _layout_item(message(value))
            layouts[name] = layout
        elif number != 1:
            raise FormatError(f"unknown field {number}")
    if not operators and not layouts:
        raise FormatError("no content")
    return StrategyFile(tuple(operators), layouts)


def _operator(data: memoryview) -> Operator:
    name, stage, cuts = "", 0, []
    for number, value in fields(data):
        if number == 1:
            name = text(value)
        elif number == 2:
            for inner, part in fields(message(value)):
                if inner == 1:
                    stage = integer(part)
                elif inner == 2:
                    cuts.append(_dims(message(part)))
    return Operator(name, stage, tuple(cuts))


def _layout_item(data: memoryview) -> tuple[str, TensorLayout]:
    name, found = "", None
    for number, value in fields(data):
        if number == 1:
            name = text(value)
        elif number == 2:
            found = _layout(message(value))
    if not name or found is None:
        raise FormatError("a layout without a parameter name")
    return name, found


def _layout(data: memoryview) -> TensorLayout:
    matrices, maps, numbers = [], [], {5: 0, 6: 0, 7: 0}
    for number, value in fields(data):
        if number == 1:
            matrices.append(_dims(message(value)))
        elif number == 2:
            maps.append(_dims(message(value)))
        elif number in numbers:
            numbers[number] = integer(value)
    nested = [list(each) for each in maps if each] if len(maps) > 1 else list(maps[0] if maps else ())
    return make_layout(matrices[0] if matrices else (), nested, field=numbers[5], step=numbers[6], size=numbers[7])


def _dims(data: memoryview) -> Shape:
    dims: list[int] = []
    for number, value in fields(data):
        if number != 1:
            continue
        if isinstance(value, int):
            dims.append(integer(value))
            continue
        at = 0  # packed
        while at < len(value):
            each, at = read_varint(value, at)
            dims.append(integer(each))
    if len(dims) > _MAX_AXES:
        raise FormatError(f"too many axes: {len(dims)}")
    return tuple(dims)


def make_layout(matrix: Any, tensor_map: Any, *, field: int = 0, step: int = 0, size: int = 0) -> TensorLayout:
    """A layout from the numbers of a strategy file; checks them."""
    devices = tuple(_int(extent) for extent in matrix) or (1,)  # stages of a single device have no matrix
    if any(not 0 < extent < 1 << 31 for extent in devices) or len(devices) > _MAX_AXES:
        raise FormatError(f"invalid device matrix {list(devices)}")
    if field:
        raise FormatError("parameters sharded by field are not supported")
    axes = []
    for entry in tensor_map:
        named = [_int(each) for each in (entry if isinstance(entry, (list, tuple)) else [entry])]
        axes.append(tuple(len(devices) - 1 - each for each in named if each != -1))
    used = [axis for each in axes for axis in each]
    if len(set(used)) != len(used) or any(not 0 <= axis < len(devices) for axis in used):
        raise FormatError(f"tensor map {list(tensor_map)} does not match device matrix {list(devices)}")
    if size < -1 or step < 0:
        raise FormatError(f"invalid optimizer sharding: {size} shards at distance {step}")
    return TensorLayout(devices, tuple(axes), shards=size, step=step)


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise FormatError(f"{value!r} is not a number")
    return value


def tensor_map(layout: TensorLayout) -> list[Any]:
    """As in strategy files: counted from the right, nested only if needed."""
    last = len(layout.devices) - 1
    entries = [[last - axis for axis in axes] or [-1] for axes in layout.axes]
    return entries if any(len(entry) > 1 for entry in entries) else [entry[0] for entry in entries]


def _to_protobuf(file: StrategyFile) -> bytes:
    parts = [number_field(1, 1)]
    for operator in file.operators:
        cuts = b"".join(bytes_field(2, _write_dims(cut)) for cut in operator.cuts)
        inner = number_field(1, operator.stage) + cuts
        parts.append(bytes_field(2, bytes_field(1, operator.name.encode()) + bytes_field(2, inner)))
    for name, layout in file.layouts.items():
        parts.append(bytes_field(3, bytes_field(1, name.encode()) + bytes_field(2, _write_layout(layout))))
    return b"".join(parts)


def _write_layout(layout: TensorLayout) -> bytes:
    entries = tensor_map(layout)
    nested = bool(entries) and isinstance(entries[0], list)
    maps = entries if nested else [entries]
    if nested and len(maps) == 1:
        maps = [*maps, []]  # readers take two or more maps as one per axis
    return b"".join(
        (
            bytes_field(1, _write_dims(layout.devices)),
            *(bytes_field(2, _write_dims(tuple(each))) for each in maps),
            bytes_field(3, b""),
            bytes_field(4, b""),
            number_field(5, 0),
            number_field(6, layout.step),
            number_field(7, layout.shards),
        )
    )


def _write_dims(dims: Shape) -> bytes:
    return b"".join(number_field(1, each) for each in dims)


# -- JSON ------------------------------------------------------------------------------------------------------------


def _from_json(data: bytes) -> StrategyFile:
    content = json.loads(data)
    operators = tuple(
        Operator(name, _int(item["stage"]), tuple(tuple(cut) for cut in item.get("parallel_strategy", ())))
        for name, item in content.get("parallel_strategy_item", {}).items()
    )
    layouts = {
        name: make_layout(
            item["dev_matrix"],
            item["tensor_map"],
            field=_int(item.get("field", 0)),
            step=_int(item.get("opt_weight_shard_step", 0)),
            size=_int(item.get("opt_weight_shard_size", 0)),
        )
        for name, item in content.get("parallel_layout_item", {}).items()
    }
    if not operators and not layouts:
        raise FormatError("it lists no parameters")
    return StrategyFile(operators, layouts)


def _to_json(file: StrategyFile) -> bytes:
    operators = {
        each.name: {"stage": each.stage, "parallel_strategy": [list(cut) for cut in each.cuts]}
        for each in file.operators
    }
    layouts = {
        name: {
            "dev_matrix": list(layout.devices),
            "tensor_map": tensor_map(layout),
            "field": 0,
            "opt_weight_shard_step": layout.step,
            "opt_weight_shard_size": layout.shards,
            "param_split_shape": [],
            "indices_offset": [],
        }
        for name, layout in file.layouts.items()
    }
    content = {"current_stage": 1, "parallel_strategy_item": operators, "parallel_layout_item": layouts}
    return json.dumps(content).encode()
