"""Start real torch jobs, and read their traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

JOB = Path(__file__).with_name("torch_job.py")
BIN = Path(sys.executable).parent
RANKS = 4


def command(script: Path | str, *arguments: object, ranks: int = RANKS) -> list[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    return [*torchrun, str(script), *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """Without the launcher variables of the test machine; one thread per rank."""
    foreign = ("RANK", "WORLD_SIZE", "SLURM_", "MASTER_", "MS_PROFILER_OPTIONS", "PACELINE_JOB")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**plain, "OMP_NUM_THREADS": "1", **more}


def start(words: list[str], log: Path, **more: str) -> subprocess.Popen[bytes]:
    """Its output goes to `log`."""
    with log.open("wb") as file:
        return subprocess.Popen(words, env=environment(**more), stdout=file, stderr=file)


def run(words: list[str], log: Path, **more: str) -> str:
    """Run a job that must succeed; returns its output."""
    job = start(words, log, **more)
    try:
        code = job.wait(timeout=600)
    finally:
        job.kill()
        job.wait()
    assert code == 0, log.read_text()
    return log.read_text()


def until(true: Callable[[], Any], *, what: str, seconds: float = 600) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := true():
            return result
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {seconds} s")


def recorded_steps(folder: Path) -> dict[int, list[int]]:
    """Rank → steps, from the ProfilerStep#N events of all traces below."""
    found: dict[int, list[int]] = {}
    for path in sorted(folder.rglob("*.pt.trace.json")):
        trace = json.loads(path.read_text())
        names = [str(event.get("name", "")) for event in trace["traceEvents"]]
        steps = sorted({int(name.partition("#")[2]) for name in names if name.startswith("ProfilerStep#")})
        found.setdefault(trace["distributedInfo"]["rank"], []).extend(steps)
    return found


def weights(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.glob("weights-*.txt"))]


def diagnosed(folder: Path, store: Path) -> dict[str, Any]:
    words = [str(BIN / "paceline"), "diagnose", str(folder), "--json", "-", "--store", str(store)]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=600)
    result: dict[str, Any] = json.loads(done.stdout)
    return result
