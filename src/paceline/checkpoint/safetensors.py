"""safetensors: eight bytes of length, a JSON head with types, shapes and offsets, then the tensors.

The head is read and written here, because only here the tensors themselves stay on disk; its rules are the library's:
at most 100 MB of head, tensors without gaps, the widest types first, then by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from paceline.checkpoint.box import Shape
from paceline.checkpoint.dtypes import INT4, DType, in_safetensors, label, named, rank
from paceline.checkpoint.files import SourceFile
from paceline.checkpoint.frame import Frame, Wanted
from paceline.checkpoint.tensors import Container, Stored, damaged
from paceline.errors import FormatError, PacelineError

FORMAT = "safetensors"
_MOST_HEAD = 100_000_000


def index(file: SourceFile) -> Container:
    if file.size < 8:
        raise damaged(file, f"{file.size} bytes are no safetensors file")
    length = int.from_bytes(file.read(0, 8), "little")
    if length > min(_MOST_HEAD, file.size - 8):
        raise damaged(file, f"a head of {length:,} bytes is declared in a file of {file.size:,}")
    try:
        head = json.loads(bytes(file.read(8, length)))
        metadata = {str(key): str(value) for key, value in (head.pop("__metadata__", None) or {}).items()}
        found = {name: _stored(file, name, entry, metadata, 8 + length) for name, entry in head.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise damaged(file, f"its head cannot be read ({type(error).__name__}: {str(error)[:80]})") from None
    _check_gapless(file, found.values(), 8 + length)
    if not found:
        raise FormatError(f"{file.name}: holds no tensor", file=file.path)
    return Container(file, FORMAT, found, metadata)


def frame(key: str, tensors: Iterable[Wanted], metadata: Mapping[str, str] | None = None) -> Frame:
    wanted = sorted(tensors, key=lambda tensor: (-rank(tensor.dtype), tensor.name))
    told = {"format": "ms", **(metadata or {})}
    head: dict[str, Any] = {}
    at = 0
    for tensor in wanted:
        if not tensor.dtype.safetensors:
            raise PacelineError(f"{tensor.name}: safetensors files cannot hold text", hint="use --format ckpt")
        if tensor.dtype.name == INT4:
            told[tensor.name] = INT4
        head[tensor.name] = {
            "dtype": tensor.dtype.safetensors, "shape": list(tensor.shape), "data_offsets": [at, at + tensor.bytes]
        }  # fmt: skip
        at += tensor.bytes
    text = json.dumps({"__metadata__": told, **head}, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    out = Frame(key)
    out.literal(len(text).to_bytes(8, "little") + text)
    for tensor in wanted:
        out.payload(tensor, 0, tensor.bytes)
    return out


def _stored(file: SourceFile, name: str, entry: dict[str, Any], metadata: Mapping[str, str], base: int) -> Stored:
    dtype = _dtype(file, name, str(entry["dtype"]), metadata)
    shape: Shape = tuple(int(extent) for extent in entry["shape"])
    low, high = (int(offset) for offset in entry["data_offsets"])
    if min((*shape, low), default=0) < 0 or high - low != prod(shape) * dtype.bytes:
        raise damaged(file, f"{name}: bytes {low:,} to {high:,} for {label(dtype)} {list(shape)}")
    if base + high > file.size:
        raise damaged(file, f"{name} ends at byte {base + high:,}, the file at {file.size:,}")
    return Stored(name, dtype, shape, ((base + low, high - low),) if high > low else ())


def _dtype(file: SourceFile, name: str, written: str, metadata: Mapping[str, str]) -> DType:
    if metadata.get(name) == INT4:
        found = named(INT4)
        assert found
        return found
    known = in_safetensors(written)
    if known is None:
        raise FormatError(f"{file.name}: {name}: type {written[:40]} is not known", file=file.path)
    return known


def _check_gapless(file: SourceFile, tensors: Iterable[Stored], base: int) -> None:
    """Two tensors in the same bytes, or bytes nobody names, are damage or an attack."""
    at = base
    for start, length in sorted(extent for stored in tensors for extent in stored.extents):
        if start != at:
            raise damaged(file, f"byte {min(start, at):,} belongs to {'two tensors' if start < at else 'no tensor'}")
        at = start + length
    if at != file.size:
        raise damaged(file, f"{file.size - at:,} bytes at its end belong to no tensor")
