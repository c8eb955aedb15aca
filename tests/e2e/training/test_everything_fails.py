"""Monitors that raise in every hook, an upload target that is gone, a full disk: exit 0, and what was lost is reported."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_JOB = Path(__file__).parents[2] / "support" / "training" / "everything_fails.py"
_GONE = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}


def test_training_ends_with_exit_0_and_says_what_was_lost(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    # The reports are on the disk that is full; they are kept, since it disappears with the process.
    job = f"{shlex.quote(sys.executable)} {shlex.quote(str(_JOB))} {disk}"
    script = f"mount -t tmpfs -o size=2m none {disk} && {job}; code=$?; cp -r {disk} {tmp_path}/kept; exit $code"
    unshare = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", disk]).returncode:
        pytest.skip("this machine does not allow a small file system of one's own")
    done = subprocess.run(
        [*unshare, "sh", "-c", script], capture_output=True, text=True, timeout=240, env={**os.environ, **_GONE}
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0 and "trained 12" in done.stdout, told
    for hook in ("train_begin", "step_begin", "step_end", "train_end", "close"):
        assert told.count(f"Broken failed in {hook}: RuntimeError: this monitor is broken; training continues") == 1
    assert "no space left" in told.lower() and "earlier checkpoints are kept, training continues" in told
    assert "files were not uploaded to s3://gone/run; they are kept locally" in told
    status = json.loads((tmp_path / "kept" / "log" / "rank_0" / "checkpoint-monitor.json").read_text())
    assert status["failures"] >= 3
    assert told.count("loss:") == 12
