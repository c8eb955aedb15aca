"""Bytes of a file to be written: known bytes, tensors read from their source files, LoRA sums."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from paceline.checkpoint.plan.file_plan import CRC_BYTES, CrcBytes, FilePlan, TensorBytes, TensorCrc
from paceline.checkpoint.plan.lora_sum import lora_sum
from paceline.checkpoint.plan.read_tensor import Array, DirectCopy, fill_from_pieces, read_tensor

_CRC_BLOCK = 8 << 20


def read_file_bytes(
    file_plan: FilePlan, low: int, high: int, direct: DirectCopy | None = None
) -> Iterator[tuple[int, Array]]:
    """Bytes low … high of the file as (offset, data); long runs are passed to `direct` instead, if given."""
    out = np.empty(high - low, np.uint8)
    filled = low
    for at, part in file_plan.parts(low, high):
        if isinstance(part, bytes):
            out[at - low : at - low + len(part)] = np.frombuffer(part, np.uint8)
        elif isinstance(part, CrcBytes):
            out[at - low : at - low + part.length] = _crc(part.crc)[part.start : part.start + part.length]
        elif part.tensor.lora is not None:
            out[at - low : at - low + part.length] = lora_sum(part)
        else:
            for start, length in fill_from_pieces(out[at - low :][: part.length], at, part, direct):
                if start > filled:
                    yield filled, out[filled - low : start - low]
                filled = start + length
    if filled < high:
        yield filled, out[filled - low :]


def _crc(crc: TensorCrc) -> Array:
    if crc.value is None:
        value, tensor = 0, crc.tensor
        for start in range(0, tensor.bytes, _CRC_BLOCK):
            part = TensorBytes(tensor, start, min(_CRC_BLOCK, tensor.bytes - start))
            data = read_tensor(tensor, start, part.length) if tensor.lora is None else lora_sum(part)
            value = zlib.crc32(np.ascontiguousarray(data).data, value)
        crc.value = value
    return np.frombuffer(crc.value.to_bytes(CRC_BYTES, "little"), np.uint8)
