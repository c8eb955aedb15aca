"""safetensors files: eight bytes of length, a JSON header with types, shapes and offsets, then the tensors.

The header is read and written here rather than by the safetensors library, because the tensors stay on disk. The rules
are the library's: at most 100 MB of header, no gaps between tensors, the widest types first, then by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from paceline.checkpoint.plan.file_plan import FilePlan, PlannedTensor
from paceline.checkpoint.tensor_files import SourceFile
from paceline.checkpoint.tensors.dtypes import INT4, DType, label, named, named_in_safetensors, sort_order
from paceline.checkpoint.tensors.tensor_index import Container, StoredTensor, damaged
from paceline.checkpoint.tensors.tensor_slice import Shape
from paceline.core.errors import FormatError, PacelineError

FORMAT = "safetensors"
_MAX_HEADER_BYTES = 100_000_000
SLICES = "paceline.slices"
"""Key of the metadata in files of one rank of a sharded model: {name: [full shape, start of the part here]}."""
SHARDING = "DCP_SHARDING_INFO"
"""Key of the metadata in files that torch's HuggingFaceStorageWriter saves for one rank."""
_MAX_TENSORS = 250_000
_MAX_VALUES = 12 * _MAX_TENSORS
"""Numbers and texts in a header: an element type, two offsets and a shape for every tensor."""


def index(file: SourceFile) -> Container:
    if file.size < 8:
        raise damaged(file, f"{file.size} bytes are too short for a safetensors file")
    length = int.from_bytes(file.read(0, 8), "little")
    if length > min(_MAX_HEADER_BYTES, file.size - 8):
        raise damaged(file, f"its header declares {length:,} bytes, but the file has {file.size:,}")
    try:
        head = json.loads(_bounded(file, bytes(file.read(8, length))))
        metadata = {str(key): str(value) for key, value in (head.pop("__metadata__", None) or {}).items()}
        found = {name: _stored(file, name, entry, metadata, 8 + length) for name, entry in head.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise damaged(file, f"its header cannot be read ({type(error).__name__}: {str(error)[:80]})") from None
    _check_gapless(file, found.values(), 8 + length)
    if not found:
        raise FormatError(f"{file.name}: no tensors in the file", file=file.path)
    return Container(file, FORMAT, found, metadata)


def _bounded(file: SourceFile, header: bytes) -> bytes:
    """The header, if its objects will fit into memory: counted before they are made."""
    if header.count(b"{") > _MAX_TENSORS or header.count(b",") > _MAX_VALUES:
        raise FormatError(f"{file.name}: its header has more than {_MAX_TENSORS:,} tensors", file=file.path)
    return header


def held_slices(metadata: Mapping[str, str], where: str) -> dict[str, tuple[Shape, Shape]]:
    """Name → (full shape, where this file's part of it starts), of a file that we saved for one rank of a sharded model."""
    if SLICES not in metadata:
        return {}
    try:
        found = json.loads(metadata[SLICES])
        return {str(name): (_shape(full), _shape(start)) for name, (full, start) in found.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{where}: its slices cannot be read ({str(error)[:80]})") from None


def saved_offsets(metadata: Mapping[str, str], where: str) -> dict[str, Shape]:
    """Name → where this file's part of it starts, of a file that torch's HuggingFaceStorageWriter saved for one rank."""
    try:
        found = json.loads(metadata[SHARDING])
        return {str(name): _shape(entry["saved_offsets"]) for name, entry in found.items()}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{where}: its {SHARDING} cannot be read ({str(error)[:80]})") from None


def _shape(numbers: list[int]) -> Shape:
    if not all(isinstance(number, int) and 0 <= number < 1 << 62 for number in numbers):
        raise ValueError(f"{numbers} is no shape")
    return tuple(numbers)


def plan_file(key: str, tensors: Iterable[PlannedTensor], metadata: Mapping[str, str] | None = None) -> FilePlan:
    ordered = sorted(tensors, key=lambda tensor: (-sort_order(tensor.dtype), tensor.name))
    entries = {"format": "ms", **(metadata or {})}
    head: dict[str, Any] = {}
    at = 0
    for tensor in ordered:
        if not tensor.dtype.safetensors:
            raise PacelineError(f"{tensor.name}: safetensors files cannot store text", hint="use --format ckpt")
        if tensor.dtype.name == INT4:
            entries[tensor.name] = INT4
        head[tensor.name] = {
            "dtype": tensor.dtype.safetensors,
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.bytes],
        }
        at += tensor.bytes
    text = json.dumps({"__metadata__": entries, **head}, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    out = FilePlan(key)
    out.add_bytes(len(text).to_bytes(8, "little") + text)
    for tensor in ordered:
        out.add_tensor(tensor, 0, tensor.bytes)
    return out


def _stored(file: SourceFile, name: str, entry: dict[str, Any], metadata: Mapping[str, str], base: int) -> StoredTensor:
    dtype = _dtype(file, name, str(entry["dtype"]), metadata)
    shape: Shape = tuple(int(extent) for extent in entry["shape"])
    low, high = (int(offset) for offset in entry["data_offsets"])
    if min((*shape, low), default=0) < 0 or high - low != prod(shape) * dtype.bytes:
        raise damaged(file, f"{name}: bytes {low:,} to {high:,} for {label(dtype)} {list(shape)}")
    if base + high > file.size:
        raise damaged(file, f"{name} ends at byte {base + high:,}, the file at {file.size:,}")
    return StoredTensor(name, dtype, shape, ((base + low, high - low),) if high > low else ())


def _dtype(file: SourceFile, name: str, written: str, metadata: Mapping[str, str]) -> DType:
    if metadata.get(name) == INT4:
        found = named(INT4)
        assert found
        return found
    known = named_in_safetensors(written)
    if known is None:
        raise FormatError(f"{file.name}: {name}: unknown element type {written[:40]}", file=file.path)
    return known


def _check_gapless(file: SourceFile, tensors: Iterable[StoredTensor], base: int) -> None:
    """Tensors that share bytes, or bytes outside of all tensors, mean damage or an attack."""
    at = base
    for start, length in sorted(extent for stored in tensors for extent in stored.extents):
        if start != at:
            raise damaged(file, f"byte {min(start, at):,} belongs to {'two tensors' if start < at else 'no tensor'}")
        at = start + length
    if at != file.size:
        raise damaged(file, f"{file.size - at:,} bytes at its end belong to no tensor")
