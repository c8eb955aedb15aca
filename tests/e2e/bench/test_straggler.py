"""A real synchronous training, one rank slowed by half: all ranks have the same throughput, the headline names the one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from paceline.bench.result import read_result
from support.bench.result_trees import paceline

TRAIN = """
import os, sys, time

from paceline.training.workloads.run_workload import main
from paceline.training.workloads.torch_models import ResNet50

computed = ResNet50.forward

def slower_by_half(model, images):
    # Backward takes twice as long as forward: half of both together, in proportion to its own time.
    begin = time.perf_counter()
    result = computed(model, images)
    if model.training and os.environ["RANK"] == "1":
        time.sleep(1.5 * (time.perf_counter() - begin))
    return result

ResNet50.forward = slower_by_half
sys.exit(main(["resnet50", *sys.argv[1:]]))
"""


@pytest.mark.timeout(2400)  # two trainings: half a minute alone, minutes among ten neighbours
def test_a_slow_rank_is_named_and_fails(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN)
    words = {"epochs": 1, "train_samples": 512, "eval_samples": 16, "batch_size": 16, "device": "cpu"}
    described = {
        "job": {
            "job_name": "slow",
            "boot_file": "train.py",
            "ranks": 2,
            "hyperparameters": words,
            "environment": {"OMP_NUM_THREADS": 1},
        },
        "profile": {"hyperparameters": {"profile": True, "profile_stop_step": 14}, "source": "profile"},
        "expect": {"throughput": 0.001},
    }
    (tmp_path / "bench.yaml").write_text(yaml.safe_dump(described))
    done = paceline("bench", "run", tmp_path / "bench.yaml", "--out", tmp_path / "out", "--lang", "en", patience=2300)
    assert done.returncode == 6, done.stdout + done.stderr
    first = done.stdout.strip().splitlines()[0]
    assert "FAIL: stragglers 1 > 0," in first and "straggler: Rank 1" in first, first
    assert (tmp_path / "out" / "profile-2.html").is_file()
    assert 'href="profile-2.html"' in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    result = read_result(tmp_path / "out" / "result.json")
    assert not [each for each in result.largest.outliers if each.kind == "rank"], "the scores alone say nothing"
