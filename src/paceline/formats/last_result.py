"""Cache of the last result of an expensive read, for consecutive sections that share a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

Result = TypeVar("Result")


class LastFileResult(Generic[Result]):
    """A function of a file that keeps its last result until it is called for another file, or a changed one."""

    def __init__(self, read: Callable[[Path], Result]) -> None:
        self._read = read
        self._results: dict[tuple[Path, int, int], Result] = {}

    def __call__(self, path: Path) -> Result:
        status = path.stat()
        key = path, status.st_size, status.st_mtime_ns
        if key not in self._results:
            self._results.clear()  # before the next is computed: never two in memory
            self._results[key] = self._read(path)
        return self._results[key]
