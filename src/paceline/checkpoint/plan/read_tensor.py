"""Bytes of a tensor, read from the pieces of source files that hold them.

A tensor is treated as an array of bytes with one more axis, the bytes of an element, so that a range may start and end
anywhere. Runs that are contiguous in source and target are not copied here but passed to a DirectCopy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Callable

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.plan.file_plan import Piece, PlannedTensor, TensorBytes
from paceline.checkpoint.tensor_files import SourceFile
from paceline.checkpoint.tensors.tensor_index import StoredTensor
from paceline.checkpoint.tensors.tensor_slice import Shape, TensorSlice, flat_slices, strides
from paceline.core.zip_strict import zip_strict
from paceline.storage.stored_file import Data

Array = npt.NDArray[np.uint8]
DirectCopy = Callable[[SourceFile, int, int, int], None]
"""Copies a contiguous run: (source file, source offset, target offset, length)."""
WINDOW = 16 << 20
"""Bytes of a source file that are mapped or read at a time."""
_DIRECT = 256 << 10
"""Shortest run, in bytes, that is worth a system call of its own."""


def read_tensor(tensor: PlannedTensor, start: int, length: int) -> Array:
    """A range of a tensor's bytes."""
    out = np.empty(length, np.uint8)
    for _ in fill_from_pieces(out, 0, TensorBytes(tensor, start, length), None):
        pass
    return out


def fill_from_pieces(out: Array, at: int, part: TensorBytes, direct: DirectCopy | None) -> Iterator[tuple[int, int]]:
    """Fill `out`; yields the runs that were copied directly instead: (target offset, length)."""
    tensor = part.tensor
    width = tensor.dtype.bytes
    origin = (*tensor.slice.start, 0)
    done = 0
    for tensor_slice in flat_slices((*tensor.shape, width), part.start, part.start + part.length):
        view = out[done : done + tensor_slice.size].reshape(tensor_slice.shape)
        wanted = TensorSlice(tuple(a + b for a, b in zip_strict(tensor_slice.start, origin)), tensor_slice.shape)
        for piece in pieces_covering(tensor.pieces, wanted):
            held = in_bytes(piece.slice, width)
            common = wanted.intersection(held)
            if common is None:
                continue
            run = _contiguous_run(common, wanted, held, piece.stored) if direct and common.size >= _DIRECT else None
            if run is None or direct is None:
                _copy(view[_slices(common.relative_to(wanted))], common.relative_to(held), piece)
                continue
            source, offset = run
            target = at + done + offset
            for start, length in _file_ranges(piece.stored, source, common.size):
                direct(piece.container.file, start, target, length)
                yield target, length
                target += length
        done += tensor_slice.size


def pieces_covering(pieces: Sequence[Piece], wanted: TensorSlice) -> Iterator[Piece]:
    """Pieces (sorted by start) that may overlap a slice given in bytes."""
    if len(wanted.start) < 2:
        yield from pieces
        return
    end = wanted.start[0] + wanted.shape[0]
    yield from takewhile(lambda piece: piece.slice.start[0] < end, pieces)


def in_bytes(tensor_slice: TensorSlice, width: int) -> TensorSlice:
    return TensorSlice((*tensor_slice.start, 0), (*tensor_slice.shape, width))


def _strides(stored: StoredTensor) -> Shape:
    width = stored.dtype.bytes
    plain = stored.layout_strides or strides(stored.shape)
    return (*(stride * width for stride in plain), 1)


def _contiguous_run(
    common: TensorSlice, wanted: TensorSlice, held: TensorSlice, stored: StoredTensor
) -> tuple[int, int] | None:
    """Byte offsets of a slice in source and target, if it is contiguous in both."""
    source, target = _strides(stored), strides(wanted.shape)
    if not _is_contiguous(common.shape, source) or not _is_contiguous(common.shape, target):
        return None
    return _offset(common.relative_to(held), source), _offset(common.relative_to(wanted), target)


def _is_contiguous(shape: Shape, steps: Shape) -> bool:
    size = 1
    for extent, step in zip_strict(reversed(shape), reversed(steps)):
        if extent > 1:
            if step != size:
                return False
            size *= extent
    return True


def _copy(out: Array, tensor_slice: TensorSlice, piece: Piece) -> None:
    """Copy a slice of a stored tensor (in bytes, relative to the tensor) into an array of its shape."""
    steps = _strides(piece.stored)
    reach = 1 + sum((extent - 1) * step for extent, step in zip_strict(tensor_slice.shape, steps))
    if reach > WINDOW and tensor_slice.size > 1:
        axis = max(range(len(steps)), key=lambda i: (tensor_slice.shape[i] - 1) * steps[i])
        half = tensor_slice.shape[axis] // 2
        for first, extent in ((0, half), (half, tensor_slice.shape[axis] - half)):
            start = tuple(a + first * (i == axis) for i, a in enumerate(tensor_slice.start))
            shape = tuple(extent if i == axis else n for i, n in enumerate(tensor_slice.shape))
            index = tuple(slice(first, first + extent) if i == axis else slice(None) for i in range(len(steps)))
            _copy(out[index], TensorSlice(start, shape), piece)
        return
    window = _window(piece, _offset(tensor_slice, steps), reach)
    width = piece.stored.dtype.bytes
    if tensor_slice.shape[-1] == width:
        # Whole elements are copied as items, not bytes: much faster where rows are short.
        element = np.dtype(f"u{width}")
        source = np.ndarray(tensor_slice.shape[:-1], element, buffer=window, strides=steps[:-1])
        np.copyto(out.view(element)[..., 0], source)
    else:
        np.copyto(out, np.ndarray(tensor_slice.shape, np.uint8, buffer=window, strides=steps))


def _window(piece: Piece, start: int, length: int) -> Data:
    ranges = list(_file_ranges(piece.stored, start, length))
    file = piece.container.file
    if len(ranges) == 1:
        return file.read(*ranges[0])
    return b"".join(file.read(first, count) for first, count in ranges)


def _file_ranges(stored: StoredTensor, start: int, length: int) -> Iterator[tuple[int, int]]:
    """File ranges (offset, length) of a range of the tensor's bytes."""
    for first, extent in stored.extents:
        if start < extent:
            count = min(length, extent - start)
            yield first + start, count
            start, length = 0, length - count
            if not length:
                return
        else:
            start -= extent


def _offset(tensor_slice: TensorSlice, steps: Shape) -> int:
    return sum(a * step for a, step in zip_strict(tensor_slice.start, steps))


def _slices(tensor_slice: TensorSlice) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip_strict(tensor_slice.start, tensor_slice.shape))
