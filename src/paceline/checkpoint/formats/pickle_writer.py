"""Write pickles of classes that are not installed here, such as torch's.

>>> import pickle
>>> pickle.loads(pickled({"size": (2, 3), "steps": [1, None, True, -(1 << 40)]}))
{'size': (2, 3), 'steps': [1, None, True, -1099511627776]}
>>> pickle.loads(pickled(Call(Global("collections", "Counter"), ("abca",))))["a"]
2
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Global:
    """A class or function by name."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    function: Global
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Instance:
    """An object made without its constructor; `state` goes to __setstate__ or becomes its attributes."""

    kind: Global
    state: Any = None


@dataclass(frozen=True)
class Persistent:
    """What the reader's persistent_load resolves (torch: a storage)."""

    id: tuple[Any, ...]


@dataclass(frozen=True)
class Pairs:
    """A dictionary whose keys have no hash here."""

    items: Sequence[tuple[Any, Any]]


def pickled(value: Any) -> bytes:
    """Protocol 2, which every Python reads."""
    return b"\x80\x02" + b"".join(_parts(value)) + b"."


def _parts(value: Any) -> Iterator[bytes]:
    if value is None or isinstance(value, bool):
        yield {None: b"N", True: b"\x88", False: b"\x89"}[value]
    elif isinstance(value, int):
        yield _int(value)
    elif isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        yield b"X" + struct.pack("<I", len(text)) + text
    elif isinstance(value, tuple):
        yield from (b"(", *_all(value), b"t")
    elif isinstance(value, list):
        yield from (b"](", *_all(value), b"e")
    elif isinstance(value, (Mapping, Pairs)):
        pairs = value.items if isinstance(value, Pairs) else value.items()
        yield from (b"}(", *(part for pair in pairs for part in _all(pair)), b"u")
    elif isinstance(value, Global):
        yield f"c{value.module}\n{value.name}\n".encode()
    elif isinstance(value, Call):
        yield from (*_parts(value.function), *_parts(value.arguments), b"R")
    elif isinstance(value, Instance):
        state = () if value.state is None else (*_parts(value.state), b"b")
        yield from (*_parts(value.kind), b")\x81", *state)
    elif isinstance(value, Persistent):
        yield from (*_parts(value.id), b"Q")
    else:
        raise TypeError(f"{type(value).__name__} cannot be written")


def _all(values: Any) -> Iterator[bytes]:
    for value in values:
        yield from _parts(value)


def _int(value: int) -> bytes:
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes((value.bit_length() >> 3) + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data
