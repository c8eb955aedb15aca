"""`paceline train` with MindSpore: readable checkpoints, bitwise resume, two ranks with a scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mindspore as ms

pytest.importorskip("yaml", reason="PyYAML is not installed; make venv-mindspore installs it")

from paceline.core.errors import UsageError
from paceline.training.runner.entrypoint import StartOptions, start
from paceline.training.runner.initial_weights import read_files
from support.training.tiny import TESTS, write_config, write_text

LAST = "rank_0/gpt2_rank_0-2_5.ckpt"
FIRST_LOSS = 5.546086
"""The same loss as with torch: tests/e2e/training/test_reference.py."""


def _words(directory: Path, name: str, *more: str) -> list[str]:
    text = write_text(directory / "text.txt")
    return [
        "--framework",
        "mindspore",
        "--output_dir",
        str(directory / name),
        "--train_dataset_dir",
        str(text),
        "--num_samples",
        "10",
        "--epochs",
        "2",
        *more,
    ]


def _config(directory: Path) -> Path:
    return write_config(
        directory / "run.yaml",
        callbacks=[
            {"type": "MFLossMonitor"},
            {"type": "CheckpointMonitor", "prefix": "gpt2", "save_checkpoint_steps": 3, "keep_checkpoint_max": 10},
        ],
    )


def test_resumed_training_is_the_same_to_the_last_bit_and_mindspore_opens_what_was_saved(tmp_path: Path) -> None:
    config = _config(tmp_path)
    assert start(config, _words(tmp_path, "whole"), StartOptions()) == 0
    opened = ms.load_checkpoint(str(tmp_path / "whole" / "checkpoint" / LAST))
    assert opened["blocks.0.attention.query.weight"].shape == (16, 16) and int(opened["global_step"].asnumpy()) == 10

    where = ("--load_checkpoint", str(tmp_path / "whole" / "checkpoint"), "--resume_training", "gpt2_rank_0-2_1.ckpt")
    assert start(config, _words(tmp_path, "again", *where), StartOptions()) == 0
    whole, again = (read_files(str(tmp_path / name / "checkpoint"), [LAST]) for name in ("whole", "again"))
    assert whole.keys() == again.keys()
    assert all(np.array_equal(whole[name], again[name]) for name in whole)
    curves = [(tmp_path / name / "log/rank_0/loss.csv").read_text().splitlines()[1:] for name in ("whole", "again")]
    assert curves[1] == curves[0][6:]
    assert float(curves[0][-1].split(",")[1]) < float(curves[0][0].split(",")[1])


def test_torch_and_mindspore_start_from_the_same_weights(tmp_path: Path) -> None:
    """Both frameworks begin from the same numbers and agree on the loss of the first step (without dropout)."""
    from paceline.training.reference.gpt2_mindspore import MindSporeLearner
    from paceline.training.reference.learner import Optimizer
    from paceline.training.reference.shape import ModelShape, initial_values, parameters

    shape = ModelShape(seq_length=16, hidden_size=16, num_layers=1, num_heads=2, dropout=0.0)
    learner = MindSporeLearner(shape, Optimizer(), 0)
    assert {name: values.shape for name, values in learner.weights().items()} == parameters(shape)
    learner.load_weights(initial_values(shape, 3))
    tokens = np.random.default_rng(0).integers(0, 256, (2, 17))
    score = learner.score(tokens)
    assert score.loss / score.tokens == pytest.approx(FIRST_LOSS, abs=1e-4)


@pytest.mark.timeout(2400)
def test_two_ranks_meet_and_save_the_same_weights(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "paceline",
        "train",
        "--config",
        str(_config(tmp_path)),
        "--ranks",
        "2",
        *_words(tmp_path, "two", "--epochs", "1"),
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    done = subprocess.run(command, env=env, cwd=tmp_path, text=True, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (
        read_files(str(tmp_path / "two" / "checkpoint"), [f"rank_{r}/gpt2_rank_{r}-1_2.ckpt"]) for r in range(2)
    )
    same = [name for name in first if name.startswith(("blocks.", "token", "adam_m.blocks"))]
    assert len(same) > 20 and all(np.array_equal(first[name], second[name]) for name in same)


def test_mindrecord_is_trained_on_as_the_tokens_it_holds(tmp_path: Path) -> None:
    from mindspore.mindrecord import FileWriter

    from paceline.training.reference.mindrecord import mindrecord_blocks, mindrecord_files

    writer = FileWriter(str(tmp_path / "wiki.train.mindrecord"), shard_num=1)
    writer.add_schema({"input_ids": {"type": "int32", "shape": [-1]}})
    rows = [np.arange(place, place + 18, dtype=np.int32) for place in range(5)]
    writer.write_raw_data([{"input_ids": row} for row in rows])
    writer.commit()
    blocks = mindrecord_blocks(mindrecord_files(tmp_path), 16, 256)
    taken = blocks.take(np.arange(5))
    assert sorted(row.tolist() for row in taken) == [row[:17].tolist() for row in rows]
    assert mindrecord_blocks(mindrecord_files(tmp_path), 16, 256, most=2).count == 2
    with pytest.raises(UsageError, match="18 tokens, and seq_length 18 needs 19"):
        mindrecord_blocks(mindrecord_files(tmp_path), 18, 256)
    with pytest.raises(UsageError, match="not in a vocabulary of 10"):
        mindrecord_blocks(mindrecord_files(tmp_path), 16, 10)
