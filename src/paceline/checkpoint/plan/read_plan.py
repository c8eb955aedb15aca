"""Bytes of a file to be written: known bytes, tensors read from their source files, LoRA sums."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paceline.checkpoint.plan.file_plan import FilePlan
from paceline.checkpoint.plan.lora_sum import lora_sum
from paceline.checkpoint.plan.read_tensor import Array, DirectCopy, fill_from_pieces


def read_file_bytes(
    file_plan: FilePlan, low: int, high: int, direct: DirectCopy | None = None
) -> Iterator[tuple[int, Array]]:
    """Bytes low … high of the file as (offset, data); long runs are passed to `direct` instead, if given."""
    out = np.empty(high - low, np.uint8)
    filled = low
    for at, part in file_plan.parts(low, high):
        if isinstance(part, bytes):
            out[at - low : at - low + len(part)] = np.frombuffer(part, np.uint8)
        elif part.tensor.lora is not None:
            out[at - low : at - low + part.length] = lora_sum(part)
        else:
            for start, length in fill_from_pieces(out[at - low :][: part.length], at, part, direct):
                if start > filled:
                    yield filled, out[filled - low : start - low]
                filled = start + length
    if filled < high:
        yield filled, out[filled - low :]
