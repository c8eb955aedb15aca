"""The peer we are measured against: msprof-analyze, in a virtual environment of its own."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

WORK = Path(__file__).parent / "work"
PEER = "msprof-analyze==26.2.0"


def install_peer() -> Path:
    """The peer's program, installed once."""
    target = WORK / "peer-venv"
    program = target / "bin" / "msprof-analyze"
    if not program.exists():
        venv.create(target, with_pip=True)
        subprocess.run([str(target / "bin" / "pip"), "install", "--quiet", PEER], check=True)
    return program
