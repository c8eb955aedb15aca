"""Resume candidates in iteration_%08d/ directories: committed by the tracker file, complete if all ranks have files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from paceline.checkpoint.formats import mindformers_v2
from paceline.checkpoint.integrity import IntegrityCheck
from paceline.checkpoint.manifest import FileRecord, read_record, record_name
from paceline.checkpoint.tensor_files import FileListing
from paceline.core.errors import FormatError, PacelineError

_DIRECTORY = re.compile(r"iteration_(\d{8,})/")
_FILE = re.compile(r"(?:.*-)?(model|opt)-(\d{7})-(\d{7})\.safetensors")


@dataclass
class IterationCandidate:
    directory: str
    """Key prefix: base, name and a slash."""
    tracked: int | None
    expected: int
    listing: FileListing
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

    def problems(self, check: IntegrityCheck) -> list[str]:
        if self.tracked is not None and self.number > self.tracked:
            return [f"not committed: {mindformers_v2.TRACKER} contains {self.tracked}"]
        absent_files = [name for name in (mindformers_v2.METADATA, mindformers_v2.COMMON) if not self._has(name)]
        missing = [rank for rank in range(self.expected) if rank not in self.files]
        if absent_files or missing:
            return [f"{name} is missing" for name in absent_files] + [f"rank {rank} has no file" for rank in missing]
        try:
            self._read_common(check.text(self.directory + mindformers_v2.COMMON))
            mindformers_v2.read(check.text(self.directory + mindformers_v2.METADATA), mindformers_v2.METADATA)
            return check.find_damage(self._recorded(check))
        except PacelineError as error:
            return [str(error)]

    def _recorded(self, check: IntegrityCheck) -> list[tuple[str, FileRecord | None]]:
        found: list[tuple[str, FileRecord | None]] = []
        for rank, keys in self.files.items():
            if not self._has(record_name(rank)):
                found += [(key, None) for key in keys]
                continue
            record = read_record(check.text(self.directory + record_name(rank)), record_name(rank))
            absent = [name for name in record.files if self.directory + name not in keys]
            if absent:
                raise FormatError(f"{absent[0]} is missing")
            found += [(key, record.files.get(key[len(self.directory) :])) for key in keys]
        return found

    def _has(self, name: str) -> bool:
        return self.directory + name in self.listing.items

    def _read_common(self, text: bytes) -> None:
        try:
            content = json.loads(text)
            self.epoch, self.step = int(content["epoch_num"]), int(content["step_num"])
            self.global_step = int(content["global_step"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(f"{mindformers_v2.COMMON}: cannot be read ({type(error).__name__})") from None


def has_iterations(keys: Iterable[str], base: str) -> bool:
    return any(key == base + mindformers_v2.TRACKER or _DIRECTORY.match(key, len(base)) for key in keys)


def candidates(
    listing: FileListing, base: str, ranks: int | None, check: IntegrityCheck
) -> Iterator[IterationCandidate]:
    tracked = _tracked(listing, base, check)
    directories = {
        match[0] for key in listing.items if key.startswith(base) and (match := _DIRECTORY.match(key, len(base)))
    }
    for directory in sorted(directories, key=lambda each: int(each[10:-1]), reverse=True):
        files: dict[int, list[str]] = {}
        worlds = {0}
        for key in sorted(listing.items):
            name = key[len(base) + len(directory) :] if key.startswith(base + directory) else ""
            if match := _FILE.fullmatch(name):
                files.setdefault(int(match[2]), []).append(key)
                worlds.add(int(match[3]))
        expected = ranks or max(1, max(worlds))
        kept = {rank: tuple(keys) for rank, keys in sorted(files.items()) if rank < expected}
        yield IterationCandidate(base + directory, tracked, expected, listing, kept)


def _tracked(listing: FileListing, base: str, check: IntegrityCheck) -> int | None:
    key = base + mindformers_v2.TRACKER
    if key not in listing.items:
        check.note(f"{mindformers_v2.TRACKER} not found: complete directories count as committed")
        return None
    text = check.text(key).decode(errors="replace").strip()
    if not text.isdecimal():
        check.note(f"{mindformers_v2.TRACKER}: {text[:40]!r} is not a number: complete directories count as committed")
        return None
    return int(text)
