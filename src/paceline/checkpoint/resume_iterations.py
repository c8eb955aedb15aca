"""Candidates among iteration_%08d/ directories: committed by the tracker file, complete by their ranks' files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from paceline.checkpoint import mindformers
from paceline.checkpoint.files import Place
from paceline.checkpoint.intact import Inspection
from paceline.checkpoint.record import FileRecord, read_record, record_name
from paceline.errors import FormatError, PacelineError

_DIRECTORY = re.compile(r"iteration_(\d{8,})/")
_FILE = re.compile(r"(?:.*-)?(model|opt)-(\d{7})-(\d{7})\.safetensors")


@dataclass
class IterationCandidate:
    directory: str
    """With base and slash."""
    tracked: int | None
    expected: int
    place: Place
    files: Mapping[int, tuple[str, ...]]
    epoch: int = 0
    step: int = 0
    global_step: int | None = None

    @property
    def name(self) -> str:
        return self.directory.rstrip("/").rpartition("/")[2]

    @property
    def number(self) -> int:
        return int(self.name.partition("_")[2])

    def problems(self, inspection: Inspection) -> list[str]:
        if self.tracked is not None and self.number > self.tracked:
            return [f"not committed: {mindformers.TRACKER} says {self.tracked}"]
        lacking = [name for name in (mindformers.METADATA, mindformers.COMMON) if not self._has(name)]
        missing = [rank for rank in range(self.expected) if rank not in self.files]
        if lacking or missing:
            return [f"{name} is missing" for name in lacking] + [f"rank {rank} has no file" for rank in missing]
        try:
            self._read_common(inspection.text(self.directory + mindformers.COMMON))
            mindformers.read(inspection.text(self.directory + mindformers.METADATA), mindformers.METADATA)
            return inspection.damages(self._recorded(inspection))
        except PacelineError as error:
            return [str(error)]

    def _recorded(self, inspection: Inspection) -> list[tuple[str, FileRecord | None]]:
        found: list[tuple[str, FileRecord | None]] = []
        for rank, keys in self.files.items():
            if not self._has(record_name(rank)):
                found += [(key, None) for key in keys]
                continue
            record = read_record(inspection.text(self.directory + record_name(rank)), record_name(rank))
            absent = [name for name in record.files if self.directory + name not in keys]
            if absent:
                raise FormatError(f"{absent[0]} is missing")
            found += [(key, record.files.get(key[len(self.directory) :])) for key in keys]
        return found

    def _has(self, name: str) -> bool:
        return self.directory + name in self.place.items

    def _read_common(self, text: bytes) -> None:
        try:
            told = json.loads(text)
            self.epoch, self.step = int(told["epoch_num"]), int(told["step_num"])
            self.global_step = int(told["global_step"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(f"{mindformers.COMMON}: cannot be read ({type(error).__name__})") from None


def is_there(keys: Iterable[str], base: str) -> bool:
    return any(key == base + mindformers.TRACKER or _DIRECTORY.match(key, len(base)) for key in keys)


def candidates(place: Place, base: str, ranks: int | None, inspection: Inspection) -> Iterator[IterationCandidate]:
    tracked = _tracked(place, base, inspection)
    directories = {
        match[0] for key in place.items if key.startswith(base) and (match := _DIRECTORY.match(key, len(base)))
    }
    for directory in sorted(directories, key=lambda each: int(each[10:-1]), reverse=True):
        files: dict[int, list[str]] = {}
        worlds = {0}
        for key in sorted(place.items):
            name = key[len(base) + len(directory) :] if key.startswith(base + directory) else ""
            if match := _FILE.fullmatch(name):
                files.setdefault(int(match[2]), []).append(key)
                worlds.add(int(match[3]))
        expected = ranks or max(1, max(worlds))
        kept = {rank: tuple(keys) for rank, keys in sorted(files.items()) if rank < expected}
        yield IterationCandidate(base + directory, tracked, expected, place, kept)


def _tracked(place: Place, base: str, inspection: Inspection) -> int | None:
    key = base + mindformers.TRACKER
    if key not in place.items:
        inspection.note(f"there is no {mindformers.TRACKER}: directories are judged by their contents")
        return None
    text = inspection.text(key).decode(errors="replace").strip()
    if not text.isdecimal():
        inspection.note(f"{mindformers.TRACKER}: {text[:40]!r} is no number: directories are judged by their contents")
        return None
    return int(text)
