"""Read and write protobuf messages without generated code; every declared length is checked before it is used.

In `core` because both `formats` and `checkpoint` read messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Tuple, Union

from paceline.core.errors import FormatError
from paceline.core.message import message as sentence

Field = Tuple[int, Union[int, memoryview]]
"""(field number, a varint or fixed-width integer, or the bytes of a string or message)"""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT = 10


def fields(message: memoryview) -> Iterator[Field]:
    """Fields in the order they were written; raises FormatError where the bytes are not a valid message."""
    at, end = 0, len(message)
    while at < end:
        key, at = read_varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = read_varint(message, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            length, at = read_varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise FormatError(sentence("proto_wire", kind=kind, at=at))
        if length > end - at:
            raise FormatError(sentence("proto_length", size=length, left=end - at))
        part = message[at : at + length]
        at += length
        yield key >> 3, part if kind == _BYTES else int.from_bytes(part, "little")


def text(value: int | memoryview) -> str:
    return "" if isinstance(value, int) else bytes(value).decode("utf-8", "replace")


def integer(value: int | memoryview) -> int:
    """A uint64 or (two's complement) int64 field."""
    if not isinstance(value, int):
        raise FormatError(sentence("proto_number"))
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value


def message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise FormatError(sentence("proto_message"))
    return value


def number_field(field: int, value: int) -> bytes:
    """
    >>> number_field(1, 300).hex(), number_field(1, -1).hex()
    ('08ac02', '08ffffffffffffffffff01')
    """
    return varint(field << 3 | _VARINT) + varint(value & 0xFFFFFFFFFFFFFFFF)


def bytes_field(field: int, value: bytes) -> bytes:
    """A field that holds a string or a nested message."""
    return bytes_head(field, len(value)) + value


def bytes_head(field: int, length: int) -> bytes:
    """Tag and length, which precede the bytes of a field."""
    return varint(field << 3 | _BYTES) + varint(length)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(message: memoryview, at: int) -> tuple[int, int]:
    result = 0
    for shift, byte in enumerate(message[at : at + _MAX_VARINT]):
        result |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return result, at + shift + 1
    raise FormatError(sentence("proto_endless", at=at))
