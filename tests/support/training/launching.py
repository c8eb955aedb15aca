"""Run `paceline launch` and look for processes it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

RANK_SCRIPT = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
rank = int(os.environ["RANK_ID"])
what = sys.argv[1]
print("rank", rank, "says", what, flush=True)
if what == "children":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path(f"env_{rank}.json").write_text(json.dumps(dict(os.environ)))
Path(f"pid_{rank}").write_text(f"{os.getpid()} {os.getpgid(0)}")
if what == "fail" and rank == 2:
    while not all(Path(f"pid_{r}").exists() for r in range(4)): time.sleep(0.01)
    print("RuntimeError: no card", file=sys.stderr); sys.exit(7)
if what == "killed" and rank == 1:
    while not all(Path(f"pid_{r}").exists() for r in range(4)): time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
if what == "polite":
    def leave(number, frame):
        Path(f"left_{rank}").write_text(str(number)); sys.exit(0)
    for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, leave)
    Path(f"ready_{rank}").touch()
if what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN); Path(f"ready_{rank}").touch()
if what != "env": time.sleep(600)
"""


def script(directory: Path) -> Path:
    path = directory / "rank.py"
    path.write_text(RANK_SCRIPT)
    return path


def launcher(directory: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "paceline", "launch", *words]
    return subprocess.Popen(
        command,
        cwd=directory,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )


def eventually(what: Callable[[], bool], seconds: float = 600) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "did not happen in time"
        time.sleep(0.02)


def groups(directory: Path, ranks: int) -> list[int]:
    eventually(
        lambda: all(
            (directory / f"pid_{rank}").exists() and (directory / f"pid_{rank}").read_text().count(" ")
            for rank in range(ranks)
        )
    )
    return [int((directory / f"pid_{rank}").read_text().split()[1]) for rank in range(ranks)]


def runs(group: int) -> bool:
    """Whether a process of the group runs; zombies do not count (a container may not reap orphans)."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            return True
    return False
