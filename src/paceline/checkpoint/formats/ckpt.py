"""MindSpore .ckpt files: a chain of messages {1: value {1: name, 2: tensor {1: dims, 2: type, 3: content}}}.

A tensor of more than 512 MiB consists of consecutive messages with the same name and the full dims. The file may end
with "crc_num" and the CRC-32 of everything before it, in ten bytes. A scalar has no dims (or [0]); text is UTF-32, dims
[0]. Only the headers are read; tensor contents are skipped.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from math import prod

from paceline.checkpoint.plan.file_plan import FilePlan, PlannedTensor
from paceline.checkpoint.plan.read_plan import read_file_bytes
from paceline.checkpoint.tensor_files import SourceFile
from paceline.checkpoint.tensors.dtypes import TEXT, DType, label, named
from paceline.checkpoint.tensors.tensor_index import Container, Extent, StoredTensor, damaged
from paceline.checkpoint.tensors.tensor_slice import Shape
from paceline.core.errors import FormatError, PacelineError
from paceline.core.protobuf import bytes_field, bytes_head, integer, number_field, read_varint

FORMAT = "ckpt"
PART = 512 << 20
_CRC = b"crc_num"
TRAILER = len(_CRC) + 10
_WINDOW = 4096
_MAX_AXES = 32
_MAX_TENSORS = 250_000
_MAX_PARTS = 8192
"""Of one tensor: 4 TiB."""
_BYTES, _VARINT = 2, 0


def index(file: SourceFile) -> Container:
    """Name, type, shape and byte ranges of every tensor."""
    crc, end = _trailer(file)
    reader = _HeaderReader(file, end)
    found: dict[str, StoredTensor] = {}
    last = ""
    while reader.at < end:
        part = reader.value()
        if part.name == last:
            if len(found[last].extents) >= _MAX_PARTS:
                raise damaged(file, f"{last} has more than {_MAX_PARTS:,} parts")
            found[last] = _joined(file, found[last], part)
        elif len(found) >= _MAX_TENSORS:
            raise FormatError(f"{file.name}: has more than {_MAX_TENSORS:,} tensors", file=file.path)
        elif part.name in found:
            raise damaged(file, f"{part.name} appears twice")
        else:
            found[part.name] = part
        last = part.name
    if not found:
        raise FormatError(f"{file.name}: no tensors in the file", file=file.path)
    tensors = {name: _checked(file, stored) for name, stored in found.items()}
    return Container(file, FORMAT, tensors, crc=crc, crc_end=end)


def plan_file(key: str, tensors: Iterable[PlannedTensor], *, crc: bool = False) -> FilePlan:
    """Plan a file to be written: headers and tensors."""
    out = FilePlan(key)
    for tensor in tensors:
        for start in range(0, max(tensor.bytes, 1), PART):
            length = min(PART, tensor.bytes - start)
            out.add_bytes(_tensor_header(tensor, length))
            out.add_tensor(tensor, start, length)
    if crc:
        out.end_with_crc(TRAILER)
    return out


def content_crc(file_plan: FilePlan, step: int) -> bytes:
    """The trailer: CRC of everything before it, read in steps of `step` bytes."""
    crc = 0
    for low in range(0, file_plan.body, step):
        for _, data in read_file_bytes(file_plan, low, min(low + step, file_plan.body)):
            crc = zlib.crc32(data.data, crc)
    return _CRC + crc.to_bytes(10, "big")


def _tensor_header(tensor: PlannedTensor, length: int) -> bytes:
    if not tensor.dtype.name:
        raise PacelineError(
            f"{tensor.name}: .ckpt files cannot store {label(tensor.dtype)}", hint="use --format safetensors"
        )
    dims = (0,) if tensor.dtype.name == TEXT else tensor.shape
    inner = b"".join(number_field(1, extent) for extent in dims) + bytes_field(2, tensor.dtype.name.encode())
    inner += bytes_head(3, length)
    name = bytes_field(1, tensor.name.encode())
    value = name + bytes_head(2, len(inner) + length) + inner
    return bytes_head(1, len(value) + length) + value


class _HeaderReader:
    """Reads header after header, through a window of the file."""

    def __init__(self, file: SourceFile, end: int) -> None:
        self._file, self.end, self.at = file, end, 0
        self._window, self._start = memoryview(b""), 0

    def value(self) -> StoredTensor:
        number, length = self._bytes_key()
        if number != 1:
            raise damaged(self._file, f"unknown field {number} at byte {self.at:,} (encrypted files cannot be read)")
        end = self._end_of(length, self.end)
        name, found = "", None
        while self.at < end:
            number, length = self._bytes_key()
            inner = self._end_of(length, end)
            if number == 1:
                name = self._text(length)
            elif number == 2:
                found = self._tensor(inner)
            elif number == 3:
                raise FormatError(f"{self._file.name}: {name}: map tensors are not supported", file=self._file.path)
            self.at = inner
        if not name or found is None:
            raise damaged(self._file, f"a tensor without name or content before byte {end:,}")
        dtype, shape, extent = found
        return StoredTensor(name, dtype, shape, (extent,))

    def _tensor(self, end: int) -> tuple[DType, Shape, Extent]:
        dims: list[int] = []
        type_name, extent = "", (end, 0)
        while self.at < end:
            key = self._varint()
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                value = self._varint()
                if number == 1:
                    dims.append(integer(value))
                continue
            if kind != _BYTES:
                raise damaged(self._file, f"wire type {kind} at byte {self.at:,}")
            length = self._varint()
            inner = self._end_of(length, end)
            if number == 1:
                while self.at < inner:
                    dims.append(integer(self._varint()))
            elif number == 2:
                type_name = self._text(length)
            elif number == 3:
                extent = (self.at, length)
            self.at = inner
            if len(dims) > _MAX_AXES:
                raise damaged(self._file, f"{len(dims)} axes at byte {self.at:,}")
        dtype = named(type_name)
        if dtype is None or any(extent < 0 for extent in dims):
            raise damaged(self._file, f"a tensor of type {type_name[:40]!r} and shape {dims} at byte {self.at:,}")
        return dtype, tuple(dims), extent

    def _bytes_key(self) -> tuple[int, int]:
        key = self._varint()
        if key & 7 != _BYTES:
            raise damaged(self._file, f"wire type {key & 7} at byte {self.at:,} (encrypted files cannot be read)")
        return key >> 3, self._varint()

    def _varint(self) -> int:
        view = self._view(10)
        try:
            value, read = read_varint(view, 0)
        except FormatError:
            raise damaged(self._file, f"invalid varint at byte {self.at:,}") from None
        self.at += read
        return value

    def _text(self, length: int) -> str:
        if length > _WINDOW:
            raise damaged(self._file, f"a name of {length:,} bytes at byte {self.at:,}")
        try:
            return str(bytes(self._view(length)[:length]), "utf-8")
        except UnicodeDecodeError:
            raise damaged(self._file, f"a name that is not UTF-8 at byte {self.at:,}") from None

    def _end_of(self, length: int, limit: int) -> int:
        if length > limit - self.at:
            raise damaged(
                self._file, f"byte {self.at:,} declares {length:,} bytes, but only {limit - self.at:,} are left"
            )
        return self.at + length

    def _view(self, length: int) -> memoryview:
        """At least `length` bytes from the current position, or the rest of the file."""
        offset = self.at - self._start
        if offset < 0 or offset + length > len(self._window):
            self._start = self.at
            self._window = memoryview(self._file.read(self.at, min(_WINDOW, self.end - self.at)))
            offset = 0
        return self._window[offset:]


def _joined(file: SourceFile, first: StoredTensor, part: StoredTensor) -> StoredTensor:
    if (first.dtype, first.shape) != (part.dtype, part.shape):
        raise damaged(file, f"parts of {first.name} differ in type or shape")
    return StoredTensor(first.name, first.dtype, first.shape, (*first.extents, *part.extents))


def _checked(file: SourceFile, stored: StoredTensor) -> StoredTensor:
    held = sum(length for _, length in stored.extents)
    if stored.dtype.name == TEXT:
        return StoredTensor(stored.name, stored.dtype, (held,), stored.extents)
    shape = () if stored.shape == (0,) and held == stored.dtype.bytes else stored.shape
    expected = prod(shape) * stored.dtype.bytes
    if held != expected:
        raise damaged(file, f"{stored.name} has {held:,} bytes, {label(stored.dtype)} {list(shape)} needs {expected:,}")
    return StoredTensor(stored.name, stored.dtype, shape, tuple(extent for extent in stored.extents if extent[1]))


def _trailer(file: SourceFile) -> tuple[int | None, int]:
    if file.size >= TRAILER:
        tail = bytes(file.read(file.size - TRAILER, TRAILER))
        if tail.startswith(_CRC):
            return int.from_bytes(tail[len(_CRC) :], "big"), file.size - TRAILER
    return None, file.size
