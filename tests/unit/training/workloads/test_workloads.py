"""FLOPs against published numbers, options, and data that can be learnt; without a framework."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from paceline.bench.bench_plan import load_bench_plan
from paceline.bench.examples import EXAMPLES, copy_example, find_description
from paceline.core.errors import UsageError
from paceline.training.workloads.model_flops import bert_forward, resnet_forward, training_flops
from paceline.training.workloads.options import WorkloadOptions, parse_options
from paceline.training.workloads.run_workload import run_workload
from paceline.training.workloads.synthetic_data import IGNORED, evaluation_part, training_part


def test_resnet_50_has_the_published_multiplications() -> None:
    """4.09 billion multiplications and additions for an image of 224 × 224, as published for version 1.5."""
    options = parse_options("resnet50", ["--image_size=224", "--width=64", "--classes=1000"])
    assert resnet_forward(options) / 2 == pytest.approx(4.09e9, rel=0.001)
    assert training_flops(options) == 3 * resnet_forward(options)


def test_bert_by_hand() -> None:
    """One layer, hidden 2, two tokens, vocabulary 3: projections 2 · 24 · 4, attention 2 · 4 · 2 · 2, head 2 · (8 + 12)."""
    options = parse_options("bert", ["--layers=1", "--hidden_size=2", "--heads=1", "--seq_length=2", "--vocab_size=3"])
    assert bert_forward(options) == 192 + 32 + 40


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--epoch=3"], "unknown hyperparameter 'epoch', did you mean 'epochs'"),
        (["--epochs=many"], "epochs: 'many' is not a number"),
        (["--batch_size=0"], "batch_size: 0 is too small"),
        (["--framework=jax"], "expected one of torch, mindspore"),
        (["--profile=maybe"], "profile: 'maybe' is not true or false"),
        (["--hidden_size=10"], "not a multiple of heads"),
        (["--image_size=100"], "not a multiple of 32"),
        (["epochs=3"], "expected --name=value"),
    ],
)
def test_a_wrong_hyperparameter_is_named(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_options("bert", words)


def test_an_unknown_workload_is_refused_and_inputs_are_ignored() -> None:
    with pytest.raises(UsageError, match="unknown workload 'gpt5'"):
        parse_options("gpt5", [])
    assert parse_options("bert", ["--data_url", "/data", "--layers", "3"]).layers == 3


def test_ranks_have_different_parts_of_the_same_data() -> None:
    options = WorkloadOptions("resnet50", train_samples=64, eval_samples=10)
    parts = [training_part(options, rank, 2) for rank in (0, 1)]
    again = training_part(options, 0, 2)
    assert [len(part) for part in parts] == [32, 32] and not np.array_equal(parts[0].inputs, parts[1].inputs)
    assert np.array_equal(parts[0].inputs, again.inputs)
    assert [len(evaluation_part(options, rank, 3)) for rank in range(3)] == [4, 3, 3]


def test_images_show_their_class() -> None:
    """The mean over each class tells the classes apart, though each pixel has as much noise as signal."""
    data = training_part(WorkloadOptions("resnet50", train_samples=400, classes=4), 0, 1)
    means = np.stack([data.inputs[data.targets == each].mean(0).ravel() for each in range(4)])
    found = np.argmin(((data.inputs.reshape(400, 1, -1) - means) ** 2).sum(-1), 1)
    assert (found == data.targets).mean() > 0.95


def test_masked_tokens_follow_from_their_neighbours() -> None:
    options = WorkloadOptions("bert", train_samples=500)
    data = training_part(options, 0, 1)
    masked = data.targets != IGNORED
    assert 0.12 < masked.mean() < 0.19 and masked.any(1).all()
    assert (data.inputs[masked] == 0).all() and data.targets[masked].min() >= 1
    assert data.inputs.max() < options.vocab_size
    known = masked[:, 1:] & ~masked[:, :-1]
    pairs = np.stack([data.inputs[:, :-1][known], data.targets[:, 1:][known]])
    table = np.zeros((options.vocab_size, options.vocab_size))
    np.add.at(table, (pairs[0], pairs[1]), 1)
    share = table.max(1).sum() / table.sum()
    assert 0.85 < share < 0.97, "nine of ten tokens follow from the one before"


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_valid_descriptions(name: str, tmp_path: Path) -> None:
    copied = copy_example(name, tmp_path / "mine")
    for path in copied:
        if path.suffix == ".yaml":
            plan = load_bench_plan(path)
            if name != "gpt2":
                words = [f"--{key}={value}" for key, value in plan.job.hyperparameters.items()]
                parse_options(name, words)
    assert find_description(Path(name)).parent.name == name
    with pytest.raises(UsageError, match="already exists"):
        copy_example(name, tmp_path / "mine")


def test_too_little_data_is_said_before_training(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(UsageError, match="train_samples 8 are not enough for one step of 1 ranks × batch_size 16"):
        run_workload(WorkloadOptions("bert", tmp_path, train_samples=8))


@pytest.mark.parametrize("model", ["resnet50", "bert"])
def test_a_training_writes_the_files_of_a_benchmark(model: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = ["--epochs=2", "--train_samples=24", "--eval_samples=10", "--batch_size=8", "--width=4", "--device=cpu"]
    run_workload(parse_options(model, [*words, f"--train_url={tmp_path}"]))
    numbers = {
        name: float((tmp_path / f"{name}.json").read_text()) for name in ("throughput_0", "accuracy", "ranksize")
    }
    assert numbers["throughput_0"] > 0 and 0 <= numbers["accuracy"] <= 1 and numbers["ranksize"] == 1
    evaluations = json.loads((tmp_path / "evaluations.json").read_text())
    assert [(each["epoch"], each["samples"]) for each in evaluations] == [(1, 24), (2, 48)]
    facts = json.loads((tmp_path / "workload.json").read_text())
    assert (facts["global_batch_size"], facts["train_samples"], facts["seed"]) == (8, 24, 1)
    assert (tmp_path / "phases.json").exists()
