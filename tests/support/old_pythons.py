"""Interpreters of this machine that are older than ours: training jobs run in them."""

from __future__ import annotations

import os
import pwd
import shutil
from functools import cache
from pathlib import Path


@cache
def interpreter(version: str) -> Path | None:
    """python of a version such as "3.8", of pyenv or on PATH; None if the machine has none."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)  # tests have a HOME of their own
    found = sorted(home.glob(f".pyenv/versions/{version}.*/bin/python"))
    if found:
        return found[-1]
    on_path = shutil.which(f"python{version}")
    return Path(on_path) if on_path else None
