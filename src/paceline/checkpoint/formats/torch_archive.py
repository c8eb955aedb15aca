"""Plan a torch.save archive that holds one tensor: what torch.load reads, also inside a .distcp file.

A zip archive without compression: the pickle of the tensor, the byte order, the tensor's bytes, a version. torch is not
needed, and the tensor's bytes are copied while the file is written; their CRC is computed then too.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from paceline.checkpoint.formats.pickle_writer import Call, Global, Persistent, pickled
from paceline.checkpoint.plan.file_plan import FilePlan, PlannedTensor, TensorCrc
from paceline.checkpoint.tensors.dtypes import BYTES, DType, torch_name
from paceline.checkpoint.tensors.tensor_slice import strides
from paceline.core.errors import PacelineError

_ALIGNMENT = 64
_PADDING_FIELD = 0x4246
"""Id of torch's extra field that aligns a record."""
_MAX_32 = 0xFFFFFFFF
_VERSION, _VERSION_64 = 20, 45
_DATE = 0x21
"""1980-01-01: the same tensors give the same bytes."""
_STORAGES = {
    "bool": "BoolStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "int16": "ShortStorage",
    "int32": "IntStorage",
    "int64": "LongStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "complex64": "ComplexFloatStorage",
}
"""Types with a storage class; torch saves newer types (float8, uint16) as untyped bytes."""


@dataclass(frozen=True)
class _Record:
    name: bytes
    size: int
    content: bytes | PlannedTensor
    crc: int | TensorCrc
    offset: int


def add_archive(file_plan: FilePlan, tensor: PlannedTensor) -> None:
    """Append the archive to the file."""
    start = file_plan.size
    records = []
    for name, content in (
        ("data.pkl", _pickle(tensor)),
        ("byteorder", b"little"),
        ("data/0", tensor),
        ("version", b"3\n"),
    ):
        records.append(_add_record(file_plan, start, f"archive/{name}".encode(), content))
    _add_directory(file_plan, start, records)


def torch_type(tensor: PlannedTensor) -> str:
    name = torch_name(tensor.dtype)
    if name is None:
        raise PacelineError(f"{tensor.name}: torch has no type {tensor.dtype.name or tensor.dtype.safetensors}")
    return name


def _pickle(tensor: PlannedTensor) -> bytes:
    name, shape = torch_type(tensor), tensor.shape
    hooks = Call(Global("collections", "OrderedDict"), ())
    if name in _STORAGES:
        storage = _storage(Global("torch", _STORAGES[name]), tensor, tensor.dtype)
        return pickled(
            Call(Global("torch._utils", "_rebuild_tensor_v2"), (storage, 0, shape, strides(shape), False, hooks))
        )
    storage = _storage(Global("torch.storage", "UntypedStorage"), tensor, BYTES)
    arguments = (storage, 0, shape, strides(shape), False, hooks, Global("torch", name))
    return pickled(Call(Global("torch._utils", "_rebuild_tensor_v3"), arguments))


def _storage(kind: Global, tensor: PlannedTensor, element: DType) -> Persistent:
    return Persistent(("storage", kind, "0", "cpu", tensor.bytes // element.bytes))


def _add_record(file_plan: FilePlan, start: int, name: bytes, content: bytes | PlannedTensor) -> _Record:
    size = len(content) if isinstance(content, bytes) else content.bytes
    crc: int | TensorCrc = zlib.crc32(content) if isinstance(content, bytes) else TensorCrc(content)
    record = _Record(name, size, content, crc, file_plan.size - start)
    extra = struct.pack("<HHQQ", 1, 16, size, size) if size >= _MAX_32 else b""
    if not isinstance(content, bytes):
        at = record.offset + 30 + len(name) + len(extra) + 4
        padding = -at % _ALIGNMENT
        extra += struct.pack("<HH", _PADDING_FIELD, padding) + b"Z" * padding
    shown = min(size, _MAX_32)
    file_plan.add_bytes(struct.pack("<4sHHHHH", b"PK\x03\x04", _needed(size), 0, 0, 0, _DATE))
    _add_crc(file_plan, crc)
    file_plan.add_bytes(struct.pack("<IIHH", shown, shown, len(name), len(extra)) + name + extra)
    if isinstance(content, bytes):
        file_plan.add_bytes(content)
    else:
        file_plan.add_tensor(content, 0, size)
    return record


def _add_directory(file_plan: FilePlan, start: int, records: list[_Record]) -> None:
    first = file_plan.size - start
    for record in records:
        numbers = [number for number in (record.size, record.size, record.offset) if number >= _MAX_32]
        extra = struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""
        needed = _VERSION_64 if numbers else _VERSION
        file_plan.add_bytes(struct.pack("<4sHHHHHH", b"PK\x01\x02", needed, needed, 0, 0, 0, _DATE))
        _add_crc(file_plan, record.crc)
        shown = min(record.size, _MAX_32)
        file_plan.add_bytes(
            struct.pack(
                "<IIHHHHHII", shown, shown, len(record.name), len(extra), 0, 0, 0, 0, min(record.offset, _MAX_32)
            )
            + record.name
            + extra
        )
    length, count = file_plan.size - start - first, len(records)
    if first >= _MAX_32:
        end = file_plan.size - start
        file_plan.add_bytes(
            struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, first)
            + struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1)
        )
    file_plan.add_bytes(struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, length, min(first, _MAX_32), 0))


def _add_crc(file_plan: FilePlan, crc: int | TensorCrc) -> None:
    if isinstance(crc, int):
        file_plan.add_bytes(struct.pack("<I", crc))
    else:
        file_plan.add_tensor_crc(crc)


def _needed(size: int) -> int:
    return _VERSION_64 if size >= _MAX_32 else _VERSION
