"""Bytes of a file to be written, put together from the pieces that hold them.

A tensor is treated as an array of bytes with one more axis, its elements' bytes, so that a stretch may begin and end
anywhere. Where source and target run in step, nothing is copied here: the run is handed to whoever can copy it best.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.box import Box, Shape, flat_boxes, strides
from paceline.checkpoint.files import SourceFile
from paceline.checkpoint.frame import Frame, Payload, Piece, Wanted
from paceline.checkpoint.tensors import Stored
from paceline.storage.store import Data

Array = npt.NDArray[np.uint8]
Direct = Callable[[SourceFile, int, int, int], None]
"""Copies (from file, from byte, to byte of the target, length) without us."""
WINDOW = 32 << 20
"""Of a source, looked at in one go."""
_DIRECT = 256 << 10
"""Runs of at least so many bytes are worth a system call of their own."""


def gather(frame: Frame, low: int, high: int, direct: Direct | None = None) -> Iterator[tuple[int, Array]]:
    """Fill bytes low … high of the file: what to write, and where; long runs go to `direct` instead, where there is one."""
    out = np.empty(high - low, np.uint8)
    filled = low
    for at, part in frame.parts(low, high):
        if isinstance(part, bytes):
            out[at - low : at - low + len(part)] = np.frombuffer(part, np.uint8)
        elif part.tensor.addition is not None:
            from paceline.checkpoint.lora import added

            out[at - low : at - low + part.length] = added(part)
        else:
            for start, length in _fill(out[at - low :][: part.length], at, part, direct):
                if start > filled:
                    yield filled, out[filled - low : start - low]
                filled = start + length
    if filled < high:
        yield filled, out[filled - low :]


def read_tensor(tensor: Wanted, start: int, length: int) -> Array:
    """A stretch of a tensor's bytes."""
    out = np.empty(length, np.uint8)
    for _ in _fill(out, 0, Payload(tensor, start, length), None):
        pass
    return out


def _fill(out: Array, at: int, part: Payload, direct: Direct | None) -> Iterator[tuple[int, int]]:
    """Yields what was copied directly: (where in the target, how much)."""
    tensor = part.tensor
    width = tensor.dtype.bytes
    origin = (*tensor.box.start, 0)
    done = 0
    for box in flat_boxes((*tensor.shape, width), part.start, part.start + part.length):
        view = out[done : done + box.size].reshape(box.shape)
        wanted = Box(tuple(a + b for a, b in zip(box.start, origin, strict=True)), box.shape)
        for piece in covering(tensor.pieces, wanted):
            held = in_bytes(piece.box, width)
            common = wanted.common(held)
            if common is None:
                continue
            run = _run(common, wanted, held, piece.stored) if direct and common.size >= _DIRECT else None
            if run is None or direct is None:
                _copy(view[_slices(common.within(wanted))], common.within(held), piece)
                continue
            source, offset = run
            target = at + done + offset
            for start, length in _file_ranges(piece.stored, source, common.size):
                direct(piece.container.file, start, target, length)
                yield target, length
                target += length
        done += box.size


def covering(pieces: Sequence[Piece], wanted: Box) -> Iterator[Piece]:
    """Pieces (sorted by where they start) that may reach into a box given in bytes."""
    if len(wanted.start) < 2:
        yield from pieces
        return
    end = wanted.start[0] + wanted.shape[0]
    yield from pieces[: bisect_left(pieces, end, key=lambda piece: piece.box.start[0])]


def in_bytes(box: Box, width: int) -> Box:
    return Box((*box.start, 0), (*box.shape, width))


def _strides(stored: Stored) -> Shape:
    width = stored.dtype.bytes
    plain = stored.layout_strides or strides(stored.shape)
    return (*(stride * width for stride in plain), 1)


def _run(common: Box, wanted: Box, held: Box, stored: Stored) -> tuple[int, int] | None:
    """Where a box starts in source and target, when its bytes follow each other in both."""
    source, target = _strides(stored), strides(wanted.shape)
    if not _in_a_row(common.shape, source) or not _in_a_row(common.shape, target):
        return None
    return _offset(common.within(held), source), _offset(common.within(wanted), target)


def _in_a_row(shape: Shape, steps: Shape) -> bool:
    size = 1
    for extent, step in zip(reversed(shape), reversed(steps), strict=True):
        if extent > 1:
            if step != size:
                return False
            size *= extent
    return True


def _copy(out: Array, box: Box, piece: Piece) -> None:
    """A box of a stored tensor (in bytes, from the tensor's own start) into an array of its shape."""
    steps = _strides(piece.stored)
    reach = 1 + sum((extent - 1) * step for extent, step in zip(box.shape, steps, strict=True))
    if reach > WINDOW and box.size > 1:
        axis = max(range(len(steps)), key=lambda i: (box.shape[i] - 1) * steps[i])
        half = box.shape[axis] // 2
        for first, extent in ((0, half), (half, box.shape[axis] - half)):
            start = tuple(a + first * (i == axis) for i, a in enumerate(box.start))
            shape = tuple(extent if i == axis else n for i, n in enumerate(box.shape))
            index = tuple(slice(first, first + extent) if i == axis else slice(None) for i in range(len(steps)))
            _copy(out[index], Box(start, shape), piece)
        return
    window = _window(piece, _offset(box, steps), reach)
    width = piece.stored.dtype.bytes
    if box.shape[-1] == width:
        # Whole elements: one item instead of its bytes, which is much faster where rows are short.
        element = np.dtype(f"u{width}")
        source = np.ndarray(box.shape[:-1], element, buffer=window, strides=steps[:-1])
        np.copyto(out.view(element)[..., 0], source)
    else:
        np.copyto(out, np.ndarray(box.shape, np.uint8, buffer=window, strides=steps))


def _window(piece: Piece, start: int, length: int) -> Data:
    ranges = list(_file_ranges(piece.stored, start, length))
    file = piece.container.file
    if len(ranges) == 1:
        return file.read(*ranges[0])
    return b"".join(file.read(first, count) for first, count in ranges)


def _file_ranges(stored: Stored, start: int, length: int) -> Iterator[tuple[int, int]]:
    """Where bytes of a tensor's content lie in its file."""
    for first, extent in stored.extents:
        if start < extent:
            count = min(length, extent - start)
            yield first + start, count
            start, length = 0, length - count
            if not length:
                return
        else:
            start -= extent


def _offset(box: Box, steps: Shape) -> int:
    return sum(a * step for a, step in zip(box.start, steps, strict=True))


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip(box.start, box.shape, strict=True))
