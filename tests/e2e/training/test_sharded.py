"""FSDP2 and tensor-parallel torch jobs: saved by slices, killed, and resumed on another number of ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paceline.training.runner.initial_weights import read_weights

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(2400)  # ten jobs of two to four ranks
STEPS = 20
_JOB = Path(__file__).parents[2] / "support" / "training" / "sharded_job.py"


def _run(kind: str, output: Path, ranks: int, *, dies_at: int = 0, resume: bool = False) -> dict[int, float]:
    """Loss of every step that ran."""
    log = output.parent / "log"
    command = [sys.executable, "-m", "paceline", "launch", "--ranks", str(ranks), "--log-dir", str(log), "--grace", "1"]
    command += [str(_JOB), kind, str(output), str(STEPS), str(dies_at), *(["resume"] if resume else [])]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert (done.returncode == 0) == (not dies_at), done.stdout + done.stderr
    lines = [line.split() for line in (log / "rank_0" / "output.log").read_text().splitlines()]
    return {int(line[1]): float.fromhex(line[2]) for line in lines if line[:1] == ["loss"]}


def test_a_job_killed_at_step_17_resumes_on_2_3_and_4_ranks(tmp_path: Path) -> None:
    """The last save was at step 15; bit-equal in the same layout, within float reordering (1e-5) in others."""
    for kind in ("fsdp2", "tp"):
        whole = _run(kind, tmp_path / kind / "whole" / "out", 2)
        assert sorted(whole) == list(range(1, STEPS + 1))
        _the_slices_make_the_full_tensors(
            tmp_path / kind / "whole" / "out" / "checkpoint", 14 if kind == "fsdp2" else 12
        )
        killed = _run(kind, tmp_path / kind / "killed" / "out", 2, dies_at=17)
        assert killed == {step: whole[step] for step in range(1, 18)}
        for ranks in (2, 3, 4):
            shutil.copytree(tmp_path / kind / "killed" / "out", tmp_path / kind / str(ranks) / "out")
            resumed = _run(kind, tmp_path / kind / str(ranks) / "out", ranks, resume=True)
            assert list(resumed) == list(range(16, STEPS + 1))
            if ranks == 2:
                assert resumed == {step: whole[step] for step in resumed}, f"{kind}: not bit-equal in the same layout"
            assert resumed == pytest.approx({step: whole[step] for step in resumed}, rel=1e-5)


def _the_slices_make_the_full_tensors(checkpoint: Path, wide: int) -> None:
    found = read_weights(str(checkpoint), ("0.weight", "2.bias", "exp_avg.0.weight"))
    assert [found[name].shape for name in found] == [(wide, 10), (7,), (wide, 10)]
    assert all(np.isfinite(value).all() and np.abs(value).sum() > 0 for value in found.values())
