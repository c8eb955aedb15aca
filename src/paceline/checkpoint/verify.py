"""Is a checkpoint whole? Structure, checksums, no part missing, replicas equal; everything found, not just the first."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from paceline.checkpoint.box import Box, whole
from paceline.checkpoint.choice import Step, rank_files
from paceline.checkpoint.containers import open_container
from paceline.checkpoint.files import Place
from paceline.checkpoint.frame import Piece, Wanted
from paceline.checkpoint.gather import Array, read_tensor
from paceline.checkpoint.source import Checkpoint, Parameter, open_checkpoint
from paceline.checkpoint.strategy import Strategy
from paceline.checkpoint.tensors import Container
from paceline.errors import PacelineError

_STEP = 16 << 20


@dataclass
class Verdict:
    """What was looked at, and what is wrong."""

    files: int = 0
    tensors: int = 0
    bytes: int = 0
    checksums: int = 0
    """Files with a CRC, which was worked out anew."""
    replicas: int = 0
    """Copies that were compared with another one."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(place: Place, strategy: Strategy | None, *, step: Step | None = None, once: bool = False) -> Verdict:
    verdict = Verdict()
    broken = list(_broken(place))
    verdict.problems += broken
    if broken:
        return verdict
    try:
        checkpoint = open_checkpoint(place, strategy, step=step, once=once)
    except PacelineError as error:
        verdict.problems.append(str(error))
        return verdict
    verdict.notes += checkpoint.notes
    for _, container in checkpoint.containers:
        verdict.files += 1
        verdict.tensors += len(container.tensors)
        verdict.bytes += container.file.size
        if container.crc is not None:
            verdict.checksums += 1
            verdict.problems += _wrong_crc(container, _crc_of_messages(container), container.crc)
        elif container.metadata.get("crc_num", "").isdecimal():
            verdict.checksums += 1
            verdict.problems += _wrong_crc(container, _crc_of_tensors(container), int(container.metadata["crc_num"]))
    for parameter in checkpoint.parameters.values():
        verdict.problems += _missing(checkpoint, parameter)
        verdict.problems += _unequal(parameter, verdict)
    if strategy is not None:
        verdict.notes += _absent(checkpoint, strategy)
    return verdict


def _broken(place: Place) -> Iterator[str]:
    """Files that cannot be opened at all: one bad rank does not hide the others."""
    keys = [place.single] if place.single else [key for keys in rank_files(place.items).values() for key in keys]
    for key in keys:
        try:
            open_container(place.file(key))
        except PacelineError as error:
            yield str(error)


def _wrong_crc(container: Container, found: int, written: int) -> list[str]:
    if found == written:
        return []
    return [f"{container.file.name}: its checksum is {found:08x}, {written:08x} was written: it is damaged"]


def _crc_of_messages(container: Container) -> int:
    """What a .ckpt's trailer sums up."""
    crc = 0
    for start in range(0, container.crc_end, _STEP):
        crc = zlib.crc32(container.file.read(start, min(_STEP, container.crc_end - start)), crc)
    return crc


def _crc_of_tensors(container: Container) -> int:
    """What MindSpore notes in safetensors' metadata: names and contents, by name."""
    crc = 0
    for name in sorted(container.tensors):
        crc = zlib.crc32(name.encode(), crc)
        for start, length in container.tensors[name].extents:
            for at in range(start, start + length, _STEP):
                crc = zlib.crc32(container.file.read(at, min(_STEP, start + length - at)), crc)
    return crc


def _missing(checkpoint: Checkpoint, parameter: Parameter) -> list[str]:
    try:
        checkpoint.wanted(parameter, whole(parameter.shape))
    except PacelineError as error:
        return [str(error)]
    return []


def _absent(checkpoint: Checkpoint, strategy: Strategy) -> Iterator[str]:
    """Parameters the strategy speaks of and no file holds: no error, because training also cuts what it does not save."""
    unknown = sorted(strategy.names - set(checkpoint.parameters) - set(checkpoint.loose))
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        yield f"the strategy also names {', '.join(unknown[:3])}{more}, which no file holds"


def _unequal(parameter: Parameter, verdict: Verdict) -> Iterator[str]:
    first: dict[Box, tuple[int, Piece]] = {}
    for rank, piece in parameter.copies:
        known = first.setdefault(piece.box, (rank, piece))
        if known[1] is piece:
            continue
        verdict.replicas += 1
        if not _equal(known[1], piece):
            yield f"{parameter.name}: ranks {known[0]} and {rank} should hold the same {piece.box}, and do not"


def _equal(left: Piece, right: Piece) -> bool:
    a, b = _blocks(left), _blocks(right)
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def _blocks(piece: Piece) -> Iterator[Array]:
    tensor = Wanted(piece.stored.name, piece.stored.dtype, piece.box, [piece])
    for start in range(0, tensor.bytes, _STEP):
        yield read_tensor(tensor, start, min(_STEP, tensor.bytes - start))
