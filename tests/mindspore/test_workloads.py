"""The workloads of benchmarks in MindSpore: alone, and two ranks that average their gradients."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORDS = ["--framework=mindspore", "--device=cpu", "--epochs=3", "--train_samples=128", "--eval_samples=64"]


@pytest.mark.timeout(2400)
def test_resnet_50_learns_its_images(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "paceline.training.workloads", "resnet50", *WORDS]
    done = subprocess.run(
        [*command, "--learning_rate=0.004", f"--train_url={tmp_path}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float((tmp_path / "accuracy.json").read_text()) > 0.5, "one of ten by chance"
    assert float((tmp_path / "throughput_0.json").read_text()) > 0
    assert json.loads((tmp_path / "workload.json").read_text())["framework"] == "mindspore"


@pytest.mark.timeout(2400)
def test_two_ranks_of_bert_train_together(tmp_path: Path) -> None:
    command = ["launch", "--ranks", "2", "--framework", "mindspore", "--"]
    program = [sys.executable, "-m", "paceline.training.workloads", "bert", *WORDS, f"--train_url={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "paceline", *command, *program],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in tmp_path.glob("throughput_*.json")} == {"throughput_0.json", "throughput_1.json"}
    evaluations = json.loads((tmp_path / "evaluations.json").read_text())
    assert [each["samples"] for each in evaluations] == [128, 256, 384]
