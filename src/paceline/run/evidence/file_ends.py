"""Whether a file ends as its writers end it: JSON with a closing bracket, CSV with a line end.

Streaming readers and DuckDB accept a file that was cut off between or inside rows; its last bytes tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path

from paceline.core.message import Message
from paceline.formats.base import CUT_OFF
from paceline.storage.file_tree import File

_TAIL = 256
_SAMPLE = 4096


def cut_off(path: Path, size: int) -> Message | None:
    """The warning about a file that ends early; None for others, or if the format does not tell."""
    suffix = path.suffix.lower()
    if size == 0 or suffix not in (".json", ".csv", ".trace"):
        return None  # an empty file is reported by its reader
    tail = _bytes_at(path, max(0, size - _TAIL), _TAIL)
    if suffix == ".csv":
        return None if tail.endswith((b"\n", b"\r")) else CUT_OFF
    return None if tail.rstrip()[-1:] in (b"]", b"}") else CUT_OFF


def same_content(files: Iterable[File]) -> list[list[File]]:
    """Groups of two or more files of equal size that hold the same bytes."""
    alike = _grouped(files, _sample)
    return [group for candidates in alike for group in _grouped(candidates, _digest)]


def _grouped(files: Iterable[File], digest: Callable[[File], Hashable]) -> list[list[File]]:
    groups: dict[Hashable, list[File]] = {}
    for file in files:
        try:
            groups.setdefault(digest(file), []).append(file)
        except OSError:
            continue  # its reader reports it
    return [group for group in groups.values() if len(group) > 1]


def _sample(file: File) -> tuple[int, bytes]:
    places = {0, max(0, file.size // 2 - _SAMPLE), max(0, file.size - _SAMPLE)}
    return file.size, b"".join(_bytes_at(file.path, place, _SAMPLE) for place in sorted(places))


def _digest(file: File) -> bytes:
    digest = hashlib.sha256()
    with file.path.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.digest()


def _bytes_at(path: Path, place: int, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(place)
        return file.read(count)
