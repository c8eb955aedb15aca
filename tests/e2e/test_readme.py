"""The commands of both READMEs and of docs/tasks that need nothing but a recording are run as they stand, against simulated runs.

Those that need a bucket, hosts, a running job or a cluster have tests of their own; that their names and options exist
checks tests/unit/test_documented_commands.py.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS_ONLY_A_RECORDING = {
    "diagnose",
    "breakdown",
    "what-if",
    "compare",
    "show",
    "sql",
    "export",
    "schema",
    "kb",
    "cache",
}


def lines(page: str) -> list[str]:
    """Commands that read a recording, without comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = (re.split(r"\s+# ", line.strip())[0] for line in text.splitlines() if line.startswith("    paceline "))
    return [
        line
        for line in found
        if line.split()[1] in NEEDS_ONLY_A_RECORDING and "://" not in line and "ours.toml" not in line
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the runs that the READMEs name."""
    target = tmp_path_factory.mktemp("readme")
    small = ["--hosts", "1", "--steps", "8", "--layers", "2", "--micro-batches", "2"]
    for name, more in {
        "runs/llama-16": ["--fault", "slow-rank:5:1.3"],
        "runs/monday": ["--fault", "slow-rank:5:1.3"],
        "runs/tuesday": [],
        "demo/run": [],
        "traces": ["--layout", "kineto", "--tp", "1", "--pp", "1"],
    }.items():
        run(target, f"paceline simulate {name} {' '.join([*small, *more])}")
    return target


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "docs/tasks.md", "docs/tasks.zh.md"])
def test_commands_of_the_readme_run(page: str, place: Path) -> None:
    commands = lines(page)
    assert len(commands) >= (7 if page.startswith("README") else 12)
    for command in commands:
        for made in [word for word in place.iterdir() if word.name not in ("runs", "demo", "traces", "cache")]:
            subprocess.run(["rm", "-rf", str(made)], check=True)  # exports refuse to overwrite
        run(place, command)


def run(place: Path, command: str) -> None:
    environment = {**os.environ, "PACELINE_CACHE": str(place / "cache"), "LC_ALL": "C.UTF-8"}
    words = [str(Path(sys.executable).with_name("paceline")), *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
