"""Binary encoding of columns for charts: typed arrays that the browser uses without copying.

    "PLC1"  u32 length of the header  header (JSON)  padding to 8  column  padding to 8  column  …

    header = {"rows": n, "columns": [{"name", "type", "at", "texts"?}], …extra}

`type` is u1, u2, i4, f4 or f8 (little-endian), `at` counts from the end of the header's padding. Texts are sent once;
their column holds indexes into `texts`. Unknown numbers are NaN.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

MEDIA_TYPE = "application/vnd.paceline.columns"
MAGIC = b"PLC1"

BinaryColumn = NDArray[Any] | Sequence[str | None]

_TYPES = {"|u1": "u1", "<u2": "u2", "<i4": "i4", "<f4": "f4", "<f8": "f8"}


def encode(columns: Mapping[str, BinaryColumn], **extra: object) -> bytes:
    """Arrays keep their type (64-bit integers become f8); lists of texts become indexes into a list of distinct texts."""
    described: list[dict[str, object]] = []
    blocks: list[bytes] = []
    at = rows = 0
    for name, column in columns.items():
        values, texts = _coded(column)
        block = values.tobytes()
        entry: dict[str, object] = {"name": name, "type": _TYPES[values.dtype.str], "at": at}
        described.append(entry if texts is None else entry | {"texts": texts})
        blocks.append(block + bytes(-len(block) % 8))
        at += len(blocks[-1])
        rows = len(values)
    header = msgspec.json.encode({"rows": rows, "columns": described, **extra})
    lead = MAGIC + struct.pack("<I", len(header)) + header
    return b"".join((lead, bytes(-len(lead) % 8), *blocks))


def _coded(column: BinaryColumn) -> tuple[NDArray[Any], list[str | None] | None]:
    if not isinstance(column, np.ndarray):
        places: dict[str | None, int] = {}
        codes = [places.setdefault(text, len(places)) for text in column]
        return _narrow(np.array(codes, dtype=np.int64)), list(places)
    if column.dtype.kind in "iub" and column.dtype.str not in _TYPES:
        return (_narrow(column), None) if _fits(column) else (column.astype("<f8"), None)
    return np.ascontiguousarray(column), None


def _fits(column: NDArray[Any]) -> bool:
    return not len(column) or (int(column.min()) >= 0 and int(column.max()) < 2**31)


def _narrow(column: NDArray[Any]) -> NDArray[Any]:
    most = int(column.max()) if len(column) else 0
    return column.astype("|u1" if most < 2**8 else "<u2" if most < 2**16 else "<i4")
