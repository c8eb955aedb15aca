"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import PacelineError


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A path beside `target` to write to, renamed when all went well: a killed process leaves the old file or the new one.

    A pipe or a device (/dev/null) is written to as it is: renaming would replace it.
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


def write_whole(target: Path, text: str) -> None:
    with whole_file(target) as path:
        path.write_text(text, encoding="utf-8")


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _remove(temporary: Path) -> None:
    try:
        temporary.unlink(missing_ok=True)
    except NotADirectoryError:
        pass  # the target's directory is none: nothing was written
