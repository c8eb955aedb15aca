"""Verify a checkpoint: structure, checksums, no missing slices, equal replicas; reports all problems."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from paceline.checkpoint.checkpoint_content import Checkpoint, Parameter
from paceline.checkpoint.file_names import Step, rank_files
from paceline.checkpoint.formats.open_container import open_container
from paceline.checkpoint.plan.file_plan import Piece, PlannedTensor
from paceline.checkpoint.plan.read_tensor import Array, read_tensor
from paceline.checkpoint.source_checkpoint import open_checkpoint
from paceline.checkpoint.strategy.strategy import Strategy
from paceline.checkpoint.tensor_files import FileListing
from paceline.checkpoint.tensors.tensor_index import Container
from paceline.checkpoint.tensors.tensor_slice import TensorSlice, full_slice
from paceline.core.errors import PacelineError
from paceline.core.zip_strict import zip_strict

_BLOCK = 16 << 20


@dataclass
class VerifyResult:
    """What was checked, and the problems found."""

    files: int = 0
    tensors: int = 0
    bytes: int = 0
    checksums: int = 0
    """Files whose CRC was recomputed and compared."""
    replicas: int = 0
    """Replicas that were compared with another one."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(
    listing: FileListing, strategy: Strategy | None, *, step: Step | None = None, deduplicated: bool = False
) -> VerifyResult:
    result = VerifyResult()
    unreadable = list(_unreadable_files(listing))
    result.problems += unreadable
    if unreadable:
        return result
    try:
        checkpoint = open_checkpoint(listing, strategy, step=step, deduplicated=deduplicated)
    except PacelineError as error:
        result.problems.append(str(error))
        return result
    result.notes += checkpoint.notes
    for _, container in checkpoint.containers:
        result.files += 1
        result.tensors += len(container.tensors)
        result.bytes += container.file.size
        if container.crc is not None:
            result.checksums += 1
            result.problems += _wrong_crc(container, _crc_of_messages(container), container.crc)
        elif container.metadata.get("crc_num", "").isdecimal():
            result.checksums += 1
            result.problems += _wrong_crc(container, _crc_of_tensors(container), int(container.metadata["crc_num"]))
    for parameter in checkpoint.parameters.values():
        result.problems += _missing(checkpoint, parameter)
        result.problems += _different_replicas(parameter, result)
    if strategy is not None:
        result.notes += _not_saved(checkpoint, strategy)
    return result


def _unreadable_files(listing: FileListing) -> Iterator[str]:
    """Files that cannot be opened; one bad rank does not hide the others."""
    keys = [listing.single] if listing.single else [key for keys in rank_files(listing.items).values() for key in keys]
    for key in keys:
        try:
            open_container(listing.file(key))
        except PacelineError as error:
            yield str(error)


def _wrong_crc(container: Container, found: int, written: int) -> list[str]:
    if found == written:
        return []
    return [f"{container.file.name}: damaged: its checksum is {found:08x}, but {written:08x} was recorded"]


def _crc_of_messages(container: Container) -> int:
    """CRC that the trailer of a .ckpt file records."""
    crc = 0
    for start in range(0, container.crc_end, _BLOCK):
        crc = zlib.crc32(container.file.read(start, min(_BLOCK, container.crc_end - start)), crc)
    return crc


def _crc_of_tensors(container: Container) -> int:
    """CRC that MindSpore records in the metadata of safetensors files: names and contents, sorted by name."""
    crc = 0
    for name in sorted(container.tensors):
        crc = zlib.crc32(name.encode(), crc)
        for start, length in container.tensors[name].extents:
            for at in range(start, start + length, _BLOCK):
                crc = zlib.crc32(container.file.read(at, min(_BLOCK, start + length - at)), crc)
    return crc


def _missing(checkpoint: Checkpoint, parameter: Parameter) -> list[str]:
    try:
        checkpoint.plan_tensor(parameter, full_slice(parameter.shape))
    except PacelineError as error:
        return [str(error)]
    return []


def _not_saved(checkpoint: Checkpoint, strategy: Strategy) -> Iterator[str]:
    """Parameters in the strategy that no file holds: not an error, because training also shards what it does not save."""
    unknown = sorted(strategy.names - set(checkpoint.parameters) - set(checkpoint.unlisted))
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        yield f"the strategy also lists {', '.join(unknown[:3])}{more}, which no file holds"


def _different_replicas(parameter: Parameter, result: VerifyResult) -> Iterator[str]:
    first: dict[TensorSlice, tuple[int, Piece]] = {}
    for rank, piece in parameter.copies:
        known = first.setdefault(piece.slice, (rank, piece))
        if known[1] is piece:
            continue
        result.replicas += 1
        if not _equal(known[1], piece):
            yield f"{parameter.name}: ranks {known[0]} and {rank} should hold the same {piece.slice}, but they differ"


def _equal(left: Piece, right: Piece) -> bool:
    a, b = _blocks(left), _blocks(right)
    return all(np.array_equal(x, y) for x, y in zip_strict(a, b))


def _blocks(piece: Piece) -> Iterator[Array]:
    tensor = PlannedTensor(piece.stored.name, piece.stored.dtype, piece.slice, [piece])
    for start in range(0, tensor.bytes, _BLOCK):
        yield read_tensor(tensor, start, min(_BLOCK, tensor.bytes - start))
