"""The latest result of an expensive reading, for sections that share a file and follow each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Latest(Generic[Result]):
    """A function of a file that remembers its last result until it is asked for another file, or a changed one."""

    def __init__(self, read: Callable[[Path], Result]) -> None:
        self._read = read
        self._results: dict[tuple[Path, int, int], Result] = {}

    def __call__(self, path: Path) -> Result:
        status = path.stat()
        key = path, status.st_size, status.st_mtime_ns
        if key not in self._results:
            self._results.clear()  # before the new one is made: never two in memory
            self._results[key] = self._read(path)
        return self._results[key]
