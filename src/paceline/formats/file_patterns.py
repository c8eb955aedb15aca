"""Names of files as patterns: which files of a tree belong to a format, decided by name alone.

A pattern is a file name, or the end of a path, with `*` for any characters except "/":

    step_trace_time.csv         in any directory
    hccl_raw_*.csv
    device_*/info.json.*        the last directory counts too

Names decide because a remote tree is listed before any of its files is fetched. Plain string operations decide because
every command that opens a source comes here: compiling regular expressions would take longer than a small trace.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import List


@dataclass(frozen=True)
class FilePatterns:
    names: tuple[str, ...]
    """Patterns of the files that are meant."""
    except_names: tuple[str, ...] = ()
    """Patterns of files that are not meant, although a pattern above matches."""
    not_below: tuple[str, ...] = ()
    """Directories ("kernel_meta", "PROF_*/host") whose files are not meant."""

    def matches(self, key: str) -> bool:
        """Whether a file is meant; `key` is its path below the root, with "/"."""
        if not key.endswith(self._endings):
            return False
        parts = key.split("/")
        return (
            any(_ends_with(parts, pattern) for pattern in self._patterns)
            and not any(_ends_with(parts, pattern) for pattern in self._exceptions)
            and not any(_contains(parts[:-1], pattern) for pattern in self._directories)
        )

    def match_any(self, directories: Mapping[str, Container[str]], names: Iterable[str]) -> bool:
        """Whether any file is meant; `names` are the distinct file names of all directories.

        A thousand ranks have a thousand files of each name: each name is compared once.
        """
        patterns = [pattern[-1] for pattern in self._patterns]
        likely = [name for name in names if any(_matches(name, pattern) for pattern in patterns)]
        return any(
            name in files and self.matches(f"{directory}/{name}" if directory else name)
            for name in likely
            for directory, files in directories.items()
        )

    @cached_property
    def _endings(self) -> tuple[str, ...]:
        """What the files' names end in, for a quick first look."""
        return tuple({pattern.rpartition("*")[2] for pattern in self.names})

    @cached_property
    def _patterns(self) -> list[_PathPattern]:
        return [_split(pattern) for pattern in self.names]

    @cached_property
    def _exceptions(self) -> list[_PathPattern]:
        return [_split(pattern) for pattern in self.except_names]

    @cached_property
    def _directories(self) -> list[_PathPattern]:
        return [_split(pattern) for pattern in self.not_below]


NO_FILES = FilePatterns(())

_NamePattern = List[str]
"""The text between the stars: ["hccl_raw_", ".csv"]."""
_PathPattern = List[_NamePattern]


def _split(pattern: str) -> _PathPattern:
    return [part.split("*") for part in pattern.split("/")]


def _ends_with(parts: Sequence[str], pattern: _PathPattern) -> bool:
    return len(parts) >= len(pattern) and all(map(_matches, reversed(parts), reversed(pattern)))


def _contains(parts: Sequence[str], pattern: _PathPattern) -> bool:
    return any(_ends_with(parts[:end], pattern) for end in range(len(pattern), len(parts) + 1))


def _matches(name: str, pattern: _NamePattern) -> bool:
    first, *middle = pattern
    if not middle:
        return name == first
    last = middle.pop()
    start, end = len(first), len(name) - len(last)
    if start > end or not (name.startswith(first) and name.endswith(last)):
        return False
    for text in middle:
        start = name.find(text, start, end)
        if start < 0:
            return False
        start += len(text)
    return True
