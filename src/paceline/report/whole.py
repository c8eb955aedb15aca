"""A file that appears whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from paceline.errors import PacelineError


def write_whole(target: Path, text: str) -> None:
    """Write beside `target`, then rename: a killed process leaves the old file or the new one.

    A pipe or a device (/dev/null) is written to as it is: renaming would replace it.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise PacelineError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        _remove(temporary)


def _remove(temporary: Path) -> None:
    try:
        temporary.unlink(missing_ok=True)
    except NotADirectoryError:
        pass  # the target's directory is none: nothing was written
