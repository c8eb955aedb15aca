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
    done = _on_a_small_disk(tmp_path, [sys.executable, str(_JOB), str(tmp_path / "disk")], _GONE)
    told = done.stdout + done.stderr
    assert done.returncode == 0 and "trained 12" in done.stdout, told
    for hook in ("train_begin", "step_begin", "step_end", "train_end", "close"):
        assert told.count(f"Broken failed in {hook}: RuntimeError: this monitor is broken; training continues") == 1
    assert "no space left" in told.lower() and "earlier checkpoints are kept, training continues" in told
    assert "files were not uploaded to s3://gone/run; they are kept locally" in told
    status = json.loads((tmp_path / "kept" / "log" / "rank_0" / "checkpoint-monitor.json").read_text())
    assert status["failures"] >= 3
    assert told.count("loss:") == 12


_PRINTS = """
for step in range(2000):
    print(f"step {step}", "x" * 2000, flush=True)
print("trained", flush=True)
raise SystemExit(0)
"""


@pytest.mark.parametrize("wrapping", ["--output-dir", ""], ids=["wrapped", "plain"])
def test_a_launched_script_outlives_the_disk_that_holds_its_log(tmp_path: Path, wrapping: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(_PRINTS)
    disk = tmp_path / "disk"
    words = [sys.executable, "-m", "paceline", "launch", "--log-dir", f"{disk}/log"]
    done = _on_a_small_disk(tmp_path, [*words, *([wrapping, f"{disk}/out"] if wrapping else []), str(script)], {})
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"the disk of {disk}/log is full: what ranks printed and recorded since then is lost" in done.stderr
    assert "step 500 " in done.stdout and "trained" not in done.stdout


def _on_a_small_disk(where: Path, command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """2 MB at `disk`. What is on it is copied to `kept`, since it disappears with the process."""
    disk = where / "disk"
    disk.mkdir()
    script = f"mount -t tmpfs -o size=2m none {disk} && {shlex.join(command)}; code=$?; cp -r {disk} {where}/kept; exit $code"
    unshare = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", disk]).returncode:
        pytest.skip("this machine does not allow a small file system of one's own")
    return subprocess.run(
        [*unshare, "sh", "-c", script], capture_output=True, text=True, timeout=600, env={**os.environ, **env}
    )
