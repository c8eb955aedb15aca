"""The reference model tensor- and pipeline-parallel: the same training as on one rank; strategy → transform → load_checkpoint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.checkpoint.transform import TransformRequest, transform
from support.training.tiny import write_config, write_text

pytest.importorskip("torch", reason="torch is not installed; `make test` installs it")
pytestmark = pytest.mark.timeout(2400)
SHAPE = {"type": "GPT2Config", "seq_length": 16, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "dropout": 0.0}


def _train(tmp_path: Path, name: str, ranks: int, *words: str, model: int = 1, stages: int = 1) -> list[float]:
    """Losses of all steps."""
    text = write_text(tmp_path / "text.txt")
    per_rank = 4 * model * stages // ranks  # the same global batch
    config = write_config(
        tmp_path / f"{name}.yaml",
        model={"model_config": SHAPE},
        runner_config={"batch_size": per_rank, "gradient_accumulation_steps": 2, "epochs": 1},
        parallel_config={"model_parallel": model, "pipeline_stage": stages},
        callbacks=[{"type": "CheckpointMonitor", "prefix": "gpt2", "save_checkpoint_steps": 5}],
    )
    command = [sys.executable, "-m", "paceline", "train", "--config", str(config), "--ranks", str(ranks)]
    command += ["--output_dir", str(tmp_path / name), "--train_dataset_dir", str(text), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = (tmp_path / name / "log" / "rank_0" / "loss.csv").read_text().splitlines()[1:]
    return [float(line.split(",")[1]) for line in lines]


def test_sharded_training_equals_one_rank_and_its_checkpoints_go_round(tmp_path: Path) -> None:
    one = _train(tmp_path, "one", 1)
    assert len(one) == 10 and one[-1] < one[0]
    sharded = _train(tmp_path, "sharded", 4, model=2, stages=2)
    assert sharded == pytest.approx(one, rel=1e-4)
    assert len(list((tmp_path / "sharded" / "strategy").iterdir())) == 4

    # The guide's steps: strategy of the target, transform, load_checkpoint.
    _train_strategy(tmp_path)
    source, target = str(tmp_path / "sharded" / "strategy"), str(tmp_path / "target" / "strategy")
    transform(TransformRequest(str(tmp_path / "sharded" / "checkpoint"), str(tmp_path / "tp2"), source, target))
    weights = ("--run_mode", "finetune", "--load_checkpoint")
    tuned = _train(tmp_path, "tuned_sharded", 2, *weights, str(tmp_path / "tp2"), model=2)
    alone = _train(
        tmp_path, "tuned", 1, *weights, str(tmp_path / "sharded" / "checkpoint"), "--src_strategy_path_or_dir", source
    )
    assert tuned == pytest.approx(alone, rel=1e-4)
    assert tuned[0] < one[0]


def _train_strategy(tmp_path: Path) -> None:
    words = ["--only_save_strategy", "True", "--parallel_config.model_parallel", "2"]
    for key, value in SHAPE.items():
        words += [f"--model.model_config.{key}", str(value)]
    command = [
        sys.executable,
        "-m",
        "paceline",
        "train",
        "--ranks",
        "2",
        "--output_dir",
        str(tmp_path / "target"),
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_sharded_run_resumes_in_its_own_and_in_another_layout(tmp_path: Path) -> None:
    whole = _train(tmp_path, "whole", 2, model=2)
    half = tmp_path / "whole" / "checkpoint"
    for rank in range(2):
        for file in half.glob(f"rank_{rank}/*-1_10.ckpt"):
            file.unlink()
    resume = ("--resume_training", "True", "--load_checkpoint", str(half))
    strategy = ("--src_strategy_path_or_dir", str(tmp_path / "whole" / "strategy"))
    same = _train(tmp_path, "same", 2, *resume, *strategy, model=2)
    assert same == whole[5:], "not bit-equal in the same layout"
    for name, ranks, model in (("shrunk", 1, 1), ("grown", 4, 2)):
        other = _train(tmp_path, name, ranks, *resume, *strategy, model=model)
        assert other == pytest.approx(whole[5:], rel=1e-4)
