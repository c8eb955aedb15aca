"""MindSpore's .ckpt: a chain of messages {1: value {1: name, 2: tensor {1: dims, 2: type, 3: content}}}.

A tensor of more than 512 MiB is several messages in a row with one name and the full dims. At the end there may be
"crc_num" and the CRC-32 of everything before it, in ten bytes. A scalar has no dims (or [0]); text is UTF-32, dims [0].
Only the heads are read: contents are stepped over.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from paceline.checkpoint.box import Shape
from paceline.checkpoint.dtypes import TEXT, DType, label, named
from paceline.checkpoint.files import SourceFile
from paceline.checkpoint.frame import Frame, Wanted
from paceline.checkpoint.tensors import Container, Extent, Stored, damaged
from paceline.errors import FormatError, PacelineError
from paceline.protobuf import bytes_field, bytes_head, integer, number_field, read_varint

FORMAT = "ckpt"
PART = 512 << 20
_CRC = b"crc_num"
TRAILER = len(_CRC) + 10
_HEAD = 4096
_MOST_AXES = 32
_BYTES, _VARINT = 2, 0


def index(file: SourceFile) -> Container:
    """Where every tensor lies."""
    crc, end = _trailer(file)
    walk = _Walk(file, end)
    found: dict[str, Stored] = {}
    last = ""
    while walk.at < end:
        part = walk.value()
        if part.name == last:
            found[last] = _joined(file, found[last], part)
        elif part.name in found:
            raise damaged(file, f"{part.name} is there twice")
        else:
            found[part.name] = part
        last = part.name
    if not found:
        raise FormatError(f"{file.name}: holds no tensor", file=file.path)
    tensors = {name: _checked(file, stored) for name, stored in found.items()}
    return Container(file, FORMAT, tensors, crc=crc, crc_end=end)


def frame(key: str, tensors: Iterable[Wanted], *, crc: bool = False) -> Frame:
    """The bytes around the tensors of a file to be written."""
    out = Frame(key)
    for tensor in tensors:
        for start in range(0, max(tensor.bytes, 1), PART):
            length = min(PART, tensor.bytes - start)
            out.literal(_head(tensor, length))
            out.payload(tensor, start, length)
    if crc:
        out.end_with_crc(TRAILER)
    return out


def crc_trailer(crc: int) -> bytes:
    return _CRC + crc.to_bytes(10, "big")


def _head(tensor: Wanted, length: int) -> bytes:
    if not tensor.dtype.name:
        raise PacelineError(
            f"{tensor.name}: .ckpt files cannot hold {label(tensor.dtype)}", hint="use --format safetensors"
        )
    dims = (0,) if tensor.dtype.name == TEXT else tensor.shape
    inner = b"".join(number_field(1, extent) for extent in dims) + bytes_field(2, tensor.dtype.name.encode())
    inner += bytes_head(3, length)
    name = bytes_field(1, tensor.name.encode())
    value = name + bytes_head(2, len(inner) + length) + inner
    return bytes_head(1, len(value) + length) + value


class _Walk:
    """Steps from head to head; a window of the file at a time."""

    def __init__(self, file: SourceFile, end: int) -> None:
        self._file, self.end, self.at = file, end, 0
        self._window, self._start = memoryview(b""), 0

    def value(self) -> Stored:
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
                raise FormatError(f"{self._file.name}: {name}: map tensors cannot be read", file=self._file.path)
            self.at = inner
        if not name or found is None:
            raise damaged(self._file, f"a tensor without a name or content before byte {end:,}")
        dtype, shape, extent = found
        return Stored(name, dtype, shape, (extent,))

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
            if len(dims) > _MOST_AXES:
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
            raise damaged(self._file, f"a number does not end at byte {self.at:,}") from None
        self.at += read
        return value

    def _text(self, length: int) -> str:
        if length > _HEAD:
            raise damaged(self._file, f"a name of {length:,} bytes at byte {self.at:,}")
        try:
            return str(bytes(self._view(length)[:length]), "utf-8")
        except UnicodeDecodeError:
            raise damaged(self._file, f"a name that is no text at byte {self.at:,}") from None

    def _end_of(self, length: int, most: int) -> int:
        if length > most - self.at:
            raise damaged(
                self._file, f"{length:,} bytes are declared at byte {self.at:,} where {most - self.at:,} are left"
            )
        return self.at + length

    def _view(self, length: int) -> memoryview:
        """At least `length` bytes from here, or what is left."""
        offset = self.at - self._start
        if offset < 0 or offset + length > len(self._window):
            self._start = self.at
            self._window = memoryview(self._file.read(self.at, min(_HEAD, self.end - self.at)))
            offset = 0
        return self._window[offset:]


def _joined(file: SourceFile, first: Stored, part: Stored) -> Stored:
    if (first.dtype, first.shape) != (part.dtype, part.shape):
        raise damaged(file, f"parts of {first.name} disagree about its type or shape")
    return Stored(first.name, first.dtype, first.shape, (*first.extents, *part.extents))


def _checked(file: SourceFile, stored: Stored) -> Stored:
    held = sum(length for _, length in stored.extents)
    if stored.dtype.name == TEXT:
        return Stored(stored.name, stored.dtype, (held,), stored.extents)
    shape = () if stored.shape == (0,) and held == stored.dtype.bytes else stored.shape
    expected = prod(shape) * stored.dtype.bytes
    if held != expected:
        raise damaged(file, f"{stored.name} has {held:,} bytes, {label(stored.dtype)} {list(shape)} needs {expected:,}")
    return Stored(stored.name, stored.dtype, shape, tuple(extent for extent in stored.extents if extent[1]))


def _trailer(file: SourceFile) -> tuple[int | None, int]:
    if file.size >= TRAILER:
        tail = bytes(file.read(file.size - TRAILER, TRAILER))
        if tail.startswith(_CRC):
            return int.from_bytes(tail[len(_CRC) :], "big"), file.size - TRAILER
    return None, file.size
