"""Start programs that record, and wait for what they write."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("light_training.py")
SLOWDOWN = 3.0


def train(folder: Path, *, world: int = 4, slow: int | None = None, mode: str = "on", model: str = "") -> list[str]:
    """Run the training; returns what each rank printed."""
    folder.mkdir(parents=True, exist_ok=True)
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                str(PROGRAM),
                str(rank),
                str(world),
                str(folder),
                str(SLOWDOWN if rank == slow else 1),
                mode,
                *([model] if model else []),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    printed = []
    try:
        for rank, process in enumerate(processes):
            out, errors = process.communicate(timeout=600)
            assert process.returncode == 0, f"rank {rank}: {errors}"
            printed.append(out.strip())
    finally:
        for process in processes:
            process.kill()  # one that failed leaves the others waiting for it
    return printed


def paceline(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("paceline")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def diagnosed(source: Path, store: Path) -> dict[str, Any]:
    done = paceline("diagnose", source, "--json", "-", "--store", store)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def blamed(source: Path, store: Path, *, world: int) -> list[tuple[str, list[int]]]:
    """Findings of medium or high severity about some ranks, not all."""
    return [
        (finding["id"], finding["subject"]["ranks"])
        for finding in diagnosed(source, store)["findings"]
        if finding["severity"] in ("high", "medium") and 0 < len(finding["subject"]["ranks"]) < world
    ]


def eventually(holds: Callable[[], Any], *, seconds: float = 600.0) -> Any:
    """Poll until the condition holds."""
    deadline = time.monotonic() + seconds
    while not (result := holds()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)
    return result
