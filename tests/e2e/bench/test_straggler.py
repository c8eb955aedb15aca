"""A real synchronous training with a slow rank: all ranks have the same throughput, and the headline names the one."""

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

def much_slower(model, images):
    # In proportion to its own time, so that a busy machine changes nothing.
    begin = time.perf_counter()
    result = computed(model, images)
    if model.training and os.environ["RANK"] == "1":
        time.sleep(8 * (time.perf_counter() - begin))
    return result

ResNet50.forward = much_slower
sys.exit(main(["resnet50", *sys.argv[1:]]))
"""


@pytest.mark.timeout(2400)  # two trainings: half a minute alone, minutes among ten neighbours
def test_a_slow_rank_is_named_and_fails(tmp_path: Path) -> None:
    pytest.importorskip("torch")
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
    done = paceline("bench", "run", tmp_path / "bench.yaml", "--out", tmp_path / "out", "--lang", "en", patience=2300)
    assert done.returncode == 6, done.stdout + done.stderr
    first = done.stdout.strip().splitlines()[0]
    assert "FAIL: stragglers 1 > 0," in first and "straggler: Rank 1" in first, first
    result = read_result(tmp_path / "out" / "result.json")
    assert not [each for each in result.largest.outliers if each.kind == "rank"], "the scores alone say nothing"
