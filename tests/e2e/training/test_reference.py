"""Reference model: text data, order of blocks, schedules, parameters, strategies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.checkpoint.strategy.strategy import read_strategy
from paceline.core.errors import UsageError
from paceline.training.reference.learner import Optimizer
from paceline.training.reference.parallel import ParallelSizes
from paceline.training.reference.shape import Lora, ModelShape, initial_values, parameters
from paceline.training.reference.text_data import SHIPPED, decode, encode, text_blocks
from paceline.training.runner.config import LossScale, LrSchedule, ParallelConfig, RunConfig
from paceline.training.runner.save_strategy import parallel_sizes, write_strategy_file
from paceline.training.runner.schedule import LossScaler, learning_rate
from paceline.training.runner.training_loop import Batches


def test_blocks_overlap_by_the_token_they_predict(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(bytes(range(100)))
    blocks = text_blocks(tmp_path / "t.txt", 10)
    assert blocks.count == 9
    assert blocks.take(np.array([2]))[0].tolist() == list(range(20, 31))


def test_wikitext_files_are_selected_by_part(tmp_path: Path) -> None:
    for name, letter in (("wiki.train.tokens", b"a"), ("wiki.valid.tokens", b"b")):
        (tmp_path / name).write_bytes(letter * 50)
    assert set(text_blocks(tmp_path, 10, part="valid").text.tobytes()) == {ord("b")}
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no text files found"):
        text_blocks(tmp_path / "empty", 10)
    with pytest.raises(UsageError, match="a block needs 101"):
        text_blocks(tmp_path / "wiki.train.tokens", 100)


def test_ranks_share_an_epoch_without_overlap_and_epochs_differ() -> None:
    blocks = text_blocks(SHIPPED, 16, most=80)
    config = RunConfig(seed=5)
    ranks = [Batches(blocks, config, rank, 4) for rank in range(4)]
    steps = ranks[0].steps_per_epoch
    assert steps == 5
    seen = [row.tobytes() for step in range(steps) for rank in ranks for row in rank.at(step).reshape(-1, 17)]
    assert len(set(seen)) == len(seen) == 80
    again = [row.tobytes() for rank in ranks for row in rank.at(steps).reshape(-1, 17)]
    assert again != seen[:16]
    assert [b.at(7).tobytes() for b in ranks] == [Batches(blocks, config, r, 4).at(7).tobytes() for r in range(4)]


def test_text_survives_encoding() -> None:
    assert decode(encode("slow → 慢")) == "slow → 慢"


def test_learning_rate_rises_then_falls_to_its_end() -> None:
    schedule = LrSchedule(type="cosine", learning_rate=1.0, lr_end=0.1, warmup_steps=2)
    rates = [learning_rate(schedule, step, 10) for step in range(11)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[6] == pytest.approx(0.55) and rates[10] == pytest.approx(0.1)
    assert learning_rate(LrSchedule(type="linear", learning_rate=1.0), 5, 10) == pytest.approx(0.5)


def test_loss_scale_halves_on_overflow_and_doubles_after_its_window() -> None:
    scale = LossScaler.begin(LossScale(loss_scale_value=8, scale_window=2))
    values = []
    for overflow in (True, False, False, False, True, True, True, True, True):
        scale.update(overflow)
        values.append(scale.value)
    assert values == [4, 4, 8, 8, 4, 2, 1, 1, 1]


def test_lora_adds_its_matrices_and_changes_nothing_else() -> None:
    plain, tuned = ModelShape(), ModelShape(lora=Lora(rank=4, targets=("query",)))
    added = {name: shape for name, shape in parameters(tuned).items() if name not in parameters(plain)}
    assert added == {
        f"blocks.{n}.attention.query.lora_{m}.weight": shape
        for n in range(2)
        for m, shape in (("A", (4, 64)), ("B", (64, 4)))
    }
    assert not any(values.any() for name, values in initial_values(tuned, 0).items() if "lora_B" in name)


def test_strategies_shard_as_megatron_does(tmp_path: Path) -> None:
    path = tmp_path / "strategy" / "ckpt_strategy_rank_0.ckpt"
    write_strategy_file(path, ModelShape(), ParallelSizes(data=2, model=4), rank=0)
    strategy = read_strategy(str(path))
    assert strategy is not None and strategy.devices == 8
    layouts = strategy.stages[0]
    names = set(parameters(ModelShape()))
    assert set(layouts) == names | {f"adam_{kind}.{name}" for kind in "mv" for name in names}
    assert layouts["blocks.0.attention.query.weight"].cuts == (4, 1)
    assert layouts["blocks.0.attention.output.weight"].cuts == (1, 4)
    assert layouts["blocks.1.mlp.wide.bias"].cuts == (4,) and layouts["blocks.1.mlp.narrow.bias"].cuts == (1,)
    assert layouts["token_embedding.weight"].cuts == (1, 1)


def test_parallel_config_must_fit_the_ranks() -> None:
    assert parallel_sizes(ParallelConfig(), 8) == ParallelSizes(8)
    assert parallel_sizes(ParallelConfig(model_parallel=2, pipeline_stage=2), 8) == ParallelSizes(2, 2, 2)
    with pytest.raises(UsageError, match="data_parallel 3 × model_parallel 1 × pipeline_stage 1 does not equal the 8"):
        parallel_sizes(ParallelConfig(data_parallel=3), 8)
    with pytest.raises(UsageError, match="no experts"):
        parallel_sizes(ParallelConfig(expert_parallel=2), 8)
    place = ParallelSizes(2, 2, 2).place(6)
    assert (place.stage, place.data, place.model) == (1, 1, 0) and place.rank(stage=0) == 2


def test_the_first_loss_equals_mindspores() -> None:
    """tests/mindspore/test_runner.py expects the same of the same weights and tokens."""
    pytest.importorskip("torch", reason="torch is not installed; `make test` installs it")
    from paceline.training.reference.gpt2_torch import TorchLearner

    shape = ModelShape(seq_length=16, hidden_size=16, num_layers=1, num_heads=2, dropout=0.0)
    learner = TorchLearner(shape, Optimizer(), 0)
    learner.load_weights(initial_values(shape, 3))
    score = learner.score(np.random.default_rng(0).integers(0, 256, (2, 17)))
    assert score.loss / score.tokens == pytest.approx(5.546086, abs=1e-4)
