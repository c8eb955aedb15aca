"""A directory that appears complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from paceline.core.errors import PacelineError, UsageError
from paceline.core.scratch_directory import scratch_directory


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A scratch directory that becomes `target` when all went well; an existing directory with files is never touched."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target}: already exists", hint="give a new directory with --output")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        opened = ExitStack()
        scratch = opened.enter_context(scratch_directory(target.parent, before=f".{target.name}."))
    except OSError as error:
        raise PacelineError(f"{target}: cannot be written: {error.strerror}") from error
    with opened:
        yield scratch
        scratch.chmod(0o755)
        if target.exists():
            target.rmdir()
        os.replace(scratch, target)
