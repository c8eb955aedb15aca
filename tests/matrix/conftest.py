"""One wheel of this clone, an S3 server, and environments of their own for the interpreters of the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.old_pythons import interpreter
from support.storage.fixtures import bucket, own_places, s3

__all__ = ["bucket", "own_places", "s3"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(directory), str(ROOT))
    (made,) = directory.glob("paceline-*.whl")
    return made


def environment(version: str, directory: Path) -> Path:
    """python of a new virtual environment; skips where the machine has no such interpreter."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    run(str(python), "-m", "venv", str(directory))
    return directory / "bin" / "python"


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """What it printed; fails with it."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
