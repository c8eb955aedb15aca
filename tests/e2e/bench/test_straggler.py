"""A real synchronous training with a rank at half speed: every rank has the same throughput, the headline names the one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from paceline.bench.result import read_result
from support.bench.result_trees import paceline

TRAIN = """
import os, sys

import torch

from paceline.training.workloads.run_workload import main
from paceline.training.workloads.torch_models import ResNet50

computed = ResNet50.forward

def at_half_speed(model, images):
    if model.training and os.environ["RANK"] == "1":
        torch.autograd.grad(computed(model, images).sum(), list(model.parameters()))  # all its work a second time
    return computed(model, images)

ResNet50.forward = at_half_speed
sys.exit(main(["resnet50", *sys.argv[1:]]))
"""


@pytest.mark.timeout(600)  # two trainings: twenty seconds alone, minutes among ten neighbours
def test_a_rank_at_half_speed_is_named_and_fails(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if os.getloadavg()[0] > 6 * (os.cpu_count() or 1):
        pytest.skip("this machine is so busy that every rank is slow now and then")
    (tmp_path / "train.py").write_text(TRAIN)
    words = {"epochs": 1, "train_samples": 576, "eval_samples": 16, "batch_size": 16, "device": "cpu"}
    described = {
        "job": {
            "job_name": "slow",
            "boot_file": "train.py",
            "ranks": 2,
            "hyperparameters": words,
            "environment": {"OMP_NUM_THREADS": 1},
        },
        "profile": {"hyperparameters": {"profile": True, "profile_stop_step": 17}, "source": "profile"},
        "expect": {"throughput": 0.001},
    }
    (tmp_path / "bench.yaml").write_text(yaml.safe_dump(described))
    done = paceline("bench", "run", tmp_path / "bench.yaml", "--out", tmp_path / "out", "--lang", "en", patience=500)
    assert done.returncode == 6, done.stderr
    first = done.stdout.strip().splitlines()[0]
    assert "FAIL: stragglers 1 > 0," in first and "straggler: Rank 1" in first, first
    result = read_result(tmp_path / "out" / "result.json")
    assert not [each for each in result.largest.outliers if each.kind == "rank"], "the scores alone say nothing"
