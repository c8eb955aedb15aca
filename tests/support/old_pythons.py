"""Interpreters of this machine that are older than ours: training jobs run in them."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path


@cache
def interpreter(version: str) -> Path | None:
    """python of a version such as "3.8", of pyenv or on PATH; None if the machine has none."""
    found = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    if found:
        return found[-1]
    on_path = shutil.which(f"python{version}")
    return Path(on_path) if on_path else None
