"""Atomic file writes: write a temporary file, sync it, rename it over the target."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.core.errors import PacelineError


@contextmanager
def atomic_write_path(target: Path) -> Iterator[Path]:
    """A temporary path to write to, renamed to `target` on success: a killed process leaves the old file or the new one.

    A pipe or a device (/dev/null) is written to directly: renaming would replace it.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.exists() and not target.is_file():
            yield target
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise PacelineError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        _remove(temporary)


def atomic_write_text(target: Path, text: str) -> None:
    with atomic_write_path(target) as path:
        path.write_text(text, encoding="utf-8")


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _remove(temporary: Path) -> None:
    try:
        temporary.unlink(missing_ok=True)
    except NotADirectoryError:
        pass  # the target's parent is not a directory: nothing was written
