"""torch .pt and .bin files: a zip archive with a pickle of names and shapes, and the bytes of the tensors.

Nothing in the file is executed: the pickle may only name tensors, storages and dictionaries (torch's weights_only), each
of which becomes an inert record here. torch is not needed, and tensor bytes are read in place.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

from paceline.checkpoint.tensor_files import SourceFile
from paceline.checkpoint.tensors import dtypes
from paceline.checkpoint.tensors.dtypes import DType
from paceline.checkpoint.tensors.tensor_index import Container, StoredTensor, damaged
from paceline.checkpoint.tensors.tensor_slice import Shape, strides
from paceline.core.errors import FormatError
from paceline.core.zip_strict import zip_strict

FORMAT = "torch"
MAGIC = b"PK\x03\x04"
_MAX_PICKLE_BYTES = 256 << 20
_MAX_OPERATIONS = 5_000_000
"""Of a pickle; about 40 describe one tensor."""
_MAX_NAMES = 250_000
_MAX_DEPTH = 64
_MAX_NAME = 4096
_STORAGES = {
    "BoolStorage": "Bool",
    "CharStorage": "Int8",
    "ByteStorage": "UInt8",
    "ShortStorage": "Int16",
    "IntStorage": "Int32",
    "LongStorage": "Int64",
    "HalfStorage": "Float16",
    "BFloat16Storage": "BFloat16",
    "FloatStorage": "Float32",
    "DoubleStorage": "Float64",
    "UInt16Storage": "UInt16",
    "UInt32Storage": "UInt32",
    "UInt64Storage": "UInt64",
    "UntypedStorage": "UInt8",
}
_LOCAL_HEADER = 30


@dataclass(frozen=True)
class _Storage:
    dtype: DType
    key: str
    count: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: Shape
    strides: Shape


def index(file: SourceFile) -> Container:
    """Index of a state dictionary; nested dictionaries become dotted names."""
    try:
        archive = zipfile.ZipFile(_Readable(file))
        tensors = list(_flat(file, _load(file, archive)))
    except (
        zipfile.BadZipFile,
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        RecursionError,
        NotImplementedError,
    ) as error:
        raise damaged(file, f"{type(error).__name__}: {str(error)[:120]}") from None
    entries = {info.filename.partition("/")[2]: info for info in archive.infolist()}
    found = {name: _stored(file, name, tensor, entries) for name, tensor in tensors}
    if not found:
        raise FormatError(f"{file.name}: no tensors in the file", file=file.path)
    return Container(file, FORMAT, found)


def _load(file: SourceFile, archive: zipfile.ZipFile) -> Any:
    names = [info for info in archive.infolist() if info.filename.endswith("/data.pkl") or info.filename == "data.pkl"]
    if len(names) != 1 or not _is_plain(names[0], _MAX_PICKLE_BYTES):
        raise FormatError(f"{file.name}: not a torch file of weights", file=file.path)
    order = [info for info in archive.infolist() if info.filename.endswith("/byteorder")]
    if order and not (_is_plain(order[0], 16) and archive.read(order[0]).strip() == b"little"):
        raise FormatError(f"{file.name}: was not written on a little-endian machine", file=file.path)
    data = archive.read(names[0])
    check_operations(data)
    return _WeightsOnly(data).load()


def _is_plain(info: zipfile.ZipInfo, most: int) -> bool:
    """Whether an entry is stored as torch stores it: a compressed one could unpack to any size."""
    return info.compress_type == zipfile.ZIP_STORED and info.file_size <= most


def check_operations(data: bytes, most: int = _MAX_OPERATIONS) -> None:
    """Reject what costs far more than its bytes: too many operations, or memo indexes for which unpickling would
    allocate memory (valid pickles count up from 0)."""
    for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if number > most:
            raise pickle.UnpicklingError(f"more than {most:,} operations describe its tensors")
        if "PUT" in opcode.name and isinstance(argument, int) and argument > len(data):
            raise pickle.UnpicklingError("memo index too large")


class _WeightsOnly(pickle.Unpickler):
    """Resolves only a few names, none of which executes anything."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))

    def find_class(self, module: str, name: str) -> Any:
        known: Callable[..., Any] | DType | None = _ALLOWED.get((module, name))
        if known is None and module in ("torch", "torch.storage") and name in _STORAGES:
            known = dtypes.named(_STORAGES[name])
        elif known is None and (module, name) == ("torch", "ComplexFloatStorage"):
            known = dtypes.named_in_torch("complex64")
        if known is None and module == "torch":
            known = dtypes.named_in_torch(name)
        if known is None:
            raise pickle.UnpicklingError(
                f"{module}.{name} is not allowed in a file of weights; files with code are not read"
            )
        return known

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, count = pid
        if kind != "storage" or not isinstance(dtype, DType):
            raise pickle.UnpicklingError(f"unknown storage {str(kind)[:40]}")
        return _Storage(dtype, str(key), int(count))


def _rebuild(storage: _Storage, offset: int, shape: Shape, stride: Shape, *_: object) -> _Tensor:
    return _Tensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, stride)))


def _rebuild_of_type(
    storage: _Storage,
    offset: int,
    shape: Shape,
    stride: Shape,
    _gradient: object,
    _hooks: object,
    dtype: DType,
    *_: object,
) -> _Tensor:
    """Types without a storage class of their own, such as float8: the storage holds bytes."""
    return _rebuild(_Storage(dtype, storage.key, storage.count // dtype.bytes), offset, shape, stride)


def _rebuild_parameter(data: _Tensor, *_: object) -> _Tensor:
    return data


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_of_type,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch", "Size"): tuple,
}


def _flat(file: SourceFile, content: Any) -> Iterator[tuple[str, _Tensor]]:
    """The tensors with dotted names; dictionaries may share parts, but neither for ever nor into millions of names."""
    waiting, seen = [("", content, 0)], 0
    while waiting:
        name, value, depth = waiting.pop()
        seen += 1
        if seen > _MAX_NAMES or depth > _MAX_DEPTH or len(name) > _MAX_NAME:
            raise damaged(file, f"its dictionaries hold one another, or more than {_MAX_NAMES:,} names")
        if isinstance(value, _Tensor):
            yield name, value
        elif isinstance(value, Mapping):  # other values are step counters and the like
            parts = ((f"{name}.{key}" if name else str(key), each, depth + 1) for key, each in value.items())
            waiting += reversed(list(islice(parts, _MAX_NAMES)))


def _stored(file: SourceFile, name: str, tensor: _Tensor, entries: Mapping[str, zipfile.ZipInfo]) -> StoredTensor:
    info = entries.get(f"data/{tensor.storage.key}")
    width = tensor.storage.dtype.bytes
    if info is None or info.compress_type != zipfile.ZIP_STORED:
        raise damaged(file, f"{name}: its data is missing or compressed")
    if min((*tensor.shape, *tensor.strides, tensor.offset), default=0) < 0 or len(tensor.shape) != len(tensor.strides):
        raise damaged(file, f"{name}: shape {tensor.shape}, strides {tensor.strides}")
    empty = prod(tensor.shape) == 0
    reach = 0 if empty else 1 + sum((n - 1) * s for n, s in zip_strict(tensor.shape, tensor.strides))
    if (tensor.offset + reach) * width > info.file_size:
        raise damaged(file, f"{name}: reaches beyond its storage")
    if not empty and prod(tensor.shape) > reach:
        raise FormatError(
            f"{file.name}: {name} is an expanded view (shape {tensor.shape}, strides {tensor.strides}); "
            "save it with .contiguous()",
            file=file.path,
        )
    plain = all(s == t or n == 1 for n, s, t in zip_strict(tensor.shape, tensor.strides, strides(tensor.shape)))
    start = _data_start(file, info) + tensor.offset * width
    extents = () if empty else ((start, reach * width),)
    return StoredTensor(name, tensor.storage.dtype, tensor.shape, extents, None if plain or empty else tensor.strides)


def _data_start(file: SourceFile, info: zipfile.ZipInfo) -> int:
    """Offset of an entry's data: the zip directory does not contain the length of the local header."""
    head = bytes(file.read(info.header_offset, _LOCAL_HEADER))
    start = (
        info.header_offset
        + _LOCAL_HEADER
        + int.from_bytes(head[26:28], "little")
        + int.from_bytes(head[28:30], "little")
    )
    if head[:4] != MAGIC or start + info.file_size > file.size:
        raise damaged(file, f"{info.filename} is not where the zip directory says")
    return start


class _Readable(io.RawIOBase):
    """A SourceFile as a seekable binary file for zipfile."""

    def __init__(self, file: SourceFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._file.size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = bytes(self._file.read(self._at, length)) if length else b""
        self._at += length
        return data
