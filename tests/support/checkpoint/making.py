"""Synthetic checkpoints, and resharding in plain NumPy; independent of the code under test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from paceline.checkpoint.strategy.tensor_layout import TensorLayout

NAMES = {
    "bool": ("Bool", "BOOL"),
    "int8": ("Int8", "I8"),
    "uint8": ("UInt8", "U8"),
    "int16": ("Int16", "I16"),
    "uint16": ("UInt16", "U16"),
    "int32": ("Int32", "I32"),
    "uint32": ("UInt32", "U32"),
    "int64": ("Int64", "I64"),
    "uint64": ("UInt64", "U64"),
    "float16": ("Float16", "F16"),
    "float32": ("Float32", "F32"),
    "float64": ("Float64", "F64"),
    "bfloat16": ("BFloat16", "BF16"),
}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
Arrays = Mapping[str, np.ndarray[Any, Any]]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def value(name: str, dims: tuple[int, ...], kind: str, content: bytes) -> bytes:
    tensor = b"".join(b"\x08" + varint(extent) for extent in dims) + field(2, kind.encode()) + field(3, content)
    return field(1, field(1, name.encode()) + field(2, tensor))


def write_ckpt(path: Path, arrays: Arrays, *, parts: int = 1, extra: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    out = b""
    for name, array in arrays.items():
        content, kind = array.tobytes(), NAMES[array.dtype.name][0]
        size = -(-len(content) // parts) or 1
        for start in range(0, max(1, len(content)), size):
            out += value(name, array.shape, kind, content[start : start + size])
    path.write_bytes(out + extra)
    return path


def write_safetensors(path: Path, arrays: Arrays, metadata: Mapping[str, str] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    head: dict[str, Any] = {"__metadata__": dict(metadata or {"format": "ms"})}
    body = b""
    for name, array in arrays.items():
        data = array.tobytes()
        offsets = [len(body), len(body) + len(data)]
        head[name] = {"dtype": NAMES[array.dtype.name][1], "shape": list(array.shape), "data_offsets": offsets}
        body += data
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


WRITERS = {"ckpt": write_ckpt, "safetensors": write_safetensors}


def part(array: np.ndarray[Any, Any], layout: TensorLayout, rank: int) -> np.ndarray[Any, Any]:
    """The slice of a rank, computed with numpy.split."""
    place = np.unravel_index(rank, layout.devices)
    for axis, cutters in enumerate(layout.axes):
        extents = [layout.devices[cutter] for cutter in cutters]
        if extents:
            index = np.ravel_multi_index([place[cutter] for cutter in cutters], extents)
            array = np.split(array, int(np.prod(extents)), axis)[int(index)]
    free = [axis for axis in range(len(layout.devices)) if not any(axis in cutters for cutters in layout.axes)]
    if layout.shards and layout.step and layout.axes and free:
        count = int(np.prod([layout.devices[axis] for axis in free]))
        replica = int(np.ravel_multi_index([place[axis] for axis in free], [layout.devices[axis] for axis in free]))
        shards = count if layout.shards < 0 else layout.shards
        array = np.split(array, shards, 0)[replica % shards]
    return np.ascontiguousarray(array).reshape(array.shape)


def write_ranks(
    root: Path, arrays: Arrays, stages: list[Mapping[str, TensorLayout]], kind: str = "ckpt", **loose: Any
) -> Path:
    """rank_N/net_N.ckpt of every rank; `loose` tensors are complete on each rank."""
    devices = next(iter(stages[0].values())).device_count
    for number, stage in enumerate(stages):
        for local in range(devices):
            rank = number * devices + local
            held = {name: part(arrays[name], layout, local) for name, layout in stage.items()}
            WRITERS[kind](root / f"rank_{rank}" / f"net_{rank}.{kind}", {**held, **loose})
    return root


def read_ckpt(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Write a complete .ckpt file."""
    data, at, found, parts = path.read_bytes(), 0, {}, {}
    if data[-17:-10] == b"crc_num":
        data = data[:-17]
    kinds = {kind: BFLOAT16 if name == "bfloat16" else np.dtype(name) for name, (kind, _) in NAMES.items()}

    def number(position: int) -> tuple[int, int]:
        result = shift = 0
        while True:
            byte = data[position]
            result |= (byte & 127) << shift
            position, shift = position + 1, shift + 7
            if byte < 128:
                return result, position

    def fields(start: int, end: int) -> list[tuple[int, Any]]:
        out: list[tuple[int, Any]] = []
        while start < end:
            key, start = number(start)
            if key & 7 == 0:
                each, start = number(start)
                out.append((key >> 3, each))
            else:
                length, start = number(start)
                out.append((key >> 3, (start, start + length)))
                start += length
        return out

    for _, (start, end) in fields(at, len(data)):
        inner = dict(fields(start, end))
        name = data[slice(*inner[1])].decode()
        tensor = fields(*inner[2])
        dims = tuple(each for key, each in tensor if key == 1)
        by_key = dict(tensor)
        kind = data[slice(*by_key[2])].decode()
        parts[name] = parts.get(name, b"") + data[slice(*by_key[3])]
        found[name] = (dims, kind)
    return {name: np.frombuffer(parts[name], kinds[kind]).reshape(dims) for name, (dims, kind) in found.items()}


def read_safetensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    head.pop("__metadata__", None)
    kinds = {kind: BFLOAT16 if name == "bfloat16" else np.dtype(name) for name, (_, kind) in NAMES.items()}
    body = data[8 + length :]
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], kinds[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in head.items()
    }


def read(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    return read_ckpt(path) if path.suffix == ".ckpt" else read_safetensors(path)


def random_array(shape: tuple[int, ...], name: str, seed: int) -> np.ndarray[Any, Any]:
    """Every bit pattern a type allows."""
    dtype = BFLOAT16 if name == "bfloat16" else np.dtype(name)
    generator = np.random.default_rng(seed)
    if name == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    raw = generator.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape)


def same(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
