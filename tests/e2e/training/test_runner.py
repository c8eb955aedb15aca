"""Every mode of `paceline train` uploads the documented files, and starts from a checkpoint in a bucket."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; `make test` installs it")

from paceline.checkpoint.strategy.strategy import read_strategy  # noqa: E402
from paceline.checkpoint.tensor_files import open_listing  # noqa: E402
from paceline.core.errors import PacelineError, UsageError  # noqa: E402
from paceline.storage.stores.open_store import open_store  # noqa: E402
from paceline.training.runner.entrypoint import StartOptions, start  # noqa: E402
from paceline.training.runner.initial_weights import read_files, read_weights  # noqa: E402
from support.checkpoint.making import write_ckpt  # noqa: E402
from support.training.tiny import write_config, write_text  # noqa: E402

FIRST = "rank_0/gpt2_rank_0-1_10.ckpt"


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def train(tmp_path: Path, bucket: str) -> Any:
    """Runs the runner in this process; name → what is in the bucket below that name."""
    text = write_text(tmp_path / "text.txt")

    def run(name: str, *words: str, **changes: Any) -> set[str]:
        changes.setdefault("runner_config", {"batch_size": 2, "epochs": 1})
        config = write_config(tmp_path / f"{name}.yaml", **changes)
        url = f"s3://{bucket}/{name}"
        data = ("--train_dataset_dir", str(text), "--eval_dataset_dir", str(text), "--num_samples", "20")
        assert (
            start(
                config, ["--output_dir", str(tmp_path / name), "--remote_save_url", url, *data, *words], StartOptions()
            )
            == 0
        )
        store = open_store(url)
        keys = {item.key for item in store.list_files()}
        store.close()
        return keys

    return run


@pytest.fixture
def trained(train: Any, bucket: str) -> str:
    """A checkpoint in the bucket."""
    keys = train("first", "--do_eval")
    assert {"accuracy.json", "eval_result.json", "throughput_0.json", "ranksize.json", "log/rank_0/loss.csv"} <= keys
    assert {f"checkpoint/{FIRST}", "checkpoint/rank_0/meta.json", "log/rank_0/info.log"} <= keys
    return f"s3://{bucket}/first/checkpoint"


def test_finetune_starts_from_the_buckets_weights(train: Any, trained: str, tmp_path: Path) -> None:
    keys = train("tuned", "--run_mode", "finetune", "--load_checkpoint", trained, "--lr_schedule.learning_rate", "0")
    assert f"checkpoint/{FIRST}" in keys
    before, after = (read_files(str(tmp_path / name / "checkpoint"), [FIRST]) for name in ("first", "tuned"))
    weights = [name for name in before if name.startswith(("blocks", "token", "position", "final"))]
    assert len(weights) == 20
    # Without a learning rate nothing moves but the weight decay, which it scales too.
    assert all(np.array_equal(before[name], after[name]) for name in weights)
    assert int(after["global_step"]) == 10


def test_lora_trains_only_its_own_matrices(train: Any, trained: str, tmp_path: Path) -> None:
    model = {
        "model_config": {
            "seq_length": 16,
            "hidden_size": 16,
            "num_layers": 1,
            "num_heads": 2,
            "pet_config": {"pet_type": "lora", "lora_rank": 2, "lora_alpha": 4},
        }
    }
    keys = train("lora", "--run_mode", "finetune", "--load_checkpoint", trained, model=model)
    assert f"checkpoint/{FIRST}" in keys
    before, after = (read_files(str(tmp_path / name / "checkpoint"), [FIRST]) for name in ("first", "lora"))
    assert np.array_equal(before["blocks.0.attention.query.weight"], after["blocks.0.attention.query.weight"])
    assert after["blocks.0.attention.query.lora_B.weight"].any()
    with pytest.raises(PacelineError, match="but the model has no LoRA"):
        train("without", "--run_mode", "eval", "--load_checkpoint", str(tmp_path / "lora" / "checkpoint"))
    assert {name for name in after if name.startswith("adam_m.")} == {
        f"adam_m.blocks.0.attention.{layer}.lora_{matrix}.weight" for layer in ("query", "value") for matrix in "AB"
    }


def test_eval_writes_perplexity_and_accuracy(train: Any, trained: str, tmp_path: Path) -> None:
    callbacks = [{"type": "ObsMonitor"}, {"type": "SummaryMonitor", "collect_freq": 1}]
    keys = train("judged", "--run_mode", "eval", "--load_checkpoint", trained, eval_callbacks=callbacks)
    assert any(key.startswith("summary/rank_0/") for key in keys)
    assert {"accuracy.json", "eval_result.json"} <= keys and not any(key.startswith("checkpoint/") for key in keys)
    first, again = (json.loads((tmp_path / name / "eval_result.json").read_text()) for name in ("first", "judged"))
    assert first == again
    assert first["perplexity"] == pytest.approx(np.exp(first["loss"])) and 0 < first["accuracy"] < 1
    assert float((tmp_path / "judged" / "accuracy.json").read_text()) == first["accuracy"]


def test_predict_continues_the_text_and_the_same_seed_draws_the_same(train: Any, trained: str, tmp_path: Path) -> None:
    words = (
        "--run_mode",
        "predict",
        "--load_checkpoint",
        trained,
        "--predict_length",
        "12",
        "--predict_data",
        "the slow",
    )
    assert "text_generation_result.txt" in train("said", *words)
    text = (tmp_path / "said" / "text_generation_result.txt").read_bytes()
    assert text.startswith(b"the slow") and len(text.decode().rstrip("\n")) == 20
    drawn = []
    for name in ("drawn", "again"):
        train(name, *words, "--do_sample", "--seed", "4")
        drawn.append((tmp_path / name / "text_generation_result.txt").read_bytes())
    assert drawn[0] == drawn[1]


def test_only_save_strategy_writes_it_and_trains_nothing(train: Any, tmp_path: Path) -> None:
    keys = train("planned", "--only_save_strategy", "True")
    assert "strategy/ckpt_strategy_rank_0.ckpt" in keys and not any("checkpoint" in key for key in keys)
    strategy = read_strategy(str(tmp_path / "planned" / "strategy"))
    assert strategy is not None and len(strategy.names) == 20


def test_profiles_are_uploaded(train: Any) -> None:
    keys = train("seen", "--profile", "True")
    assert [key for key in keys if key.startswith("profile/rank_0/") and key.endswith(".pt.trace.json")]


def test_dumps_are_uploaded_from_anywhere(train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"path": str(tmp_path / "elsewhere"), "net_name": "Gpt2", "iteration": "0|3-4", "support_device": [0]}
    (tmp_path / "dump.json").write_text(json.dumps({"common_dump_settings": settings}))
    monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", str(tmp_path / "dump.json"))
    dumped = [key for key in train("dumped") if key.startswith("dump/rank_0/Gpt2/0/")]
    assert {key.split("/")[4] for key in dumped} == {"0", "3", "4"}
    (query,) = (tmp_path / "elsewhere" / "rank_0" / "Gpt2" / "0" / "3").glob("Linear.blocks_0_attention_query.*.npy")
    assert np.load(query).shape == (2, 16, 16)


def test_training_without_overflow_learns(train: Any, tmp_path: Path) -> None:
    train("learned", "--epochs", "6", "--lr_schedule.learning_rate", "0.01")
    lines = (tmp_path / "learned" / "log" / "rank_0" / "loss.csv").read_text().splitlines()[1:]
    losses = [float(line.split(",")[1]) for line in lines]
    assert len(losses) == 60 and losses[0] > 5 and losses[-1] < 3


def test_an_overflow_skips_the_step_and_halves_the_scale(train: Any, tmp_path: Path) -> None:
    train("over", "--runner_wrapper.scale_sense.loss_scale_value", "1e38")
    saved = read_files(str(tmp_path / "over" / "checkpoint"), [FIRST])
    assert float(saved["loss_scale"]) < 1e38
    assert int(saved["global_step"]) == 10 and int(saved["adam_steps"]) < 10


def test_missing_or_foreign_weights_are_explained(train: Any, trained: str) -> None:
    with pytest.raises(UsageError, match="run_mode finetune needs weights"):
        train("a", "--run_mode", "finetune")
    with pytest.raises(
        PacelineError,
        match=r"token_embedding.weight: shape \[256, 16\] in the checkpoint, but \[300, 16\] in the model",
    ):
        train("b", "--run_mode", "eval", "--load_checkpoint", trained, "--model.model_config.vocab_size", "300")
    with pytest.raises(PacelineError, match=r"blocks\.1\.norm1\.weight and 15 more not found"):
        train("e", "--run_mode", "finetune", "--load_checkpoint", trained, "--model.model_config.num_layers", "2")
    with pytest.raises(UsageError, match="not enough for one step"):
        train("c", "--batch_size", "50")
    with pytest.raises(PacelineError, match=r"checkpoint gpt2_rank_0-9_9.ckpt not found"):
        train("d", "--load_checkpoint", trained, "--resume_training", "gpt2_rank_0-9_9.ckpt")


def test_a_checkpoint_that_cannot_be_resumed_is_explained(
    train: Any, trained: str, tmp_path: Path, bucket: str
) -> None:
    words = ("--load_checkpoint", str(tmp_path / "foreign"), "--resume_training", "gpt2_rank_0-1_10.ckpt")
    arrays = read_files(str(tmp_path / "first" / "checkpoint"), [FIRST])
    (tmp_path / "foreign").mkdir()
    for missing, message in (
        ("global_step", "contains no global_step"),
        ("adam_m.final_norm.bias", "adam_m.final_norm.bias not found"),
    ):
        kept = {name: value for name, value in arrays.items() if name != missing}
        write_ckpt(tmp_path / "foreign" / "gpt2_rank_0-1_10.ckpt", kept)
        with pytest.raises(UsageError, match=message) as caught:
            train("resumed", *words)
        assert caught.value.hint == "start a new training from its weights: --run_mode finetune --resume_training False"


def test_a_first_start_with_resume_begins_from_scratch_and_a_named_file_is_resumed(
    train: Any, tmp_path: Path, bucket: str
) -> None:
    train("job", "--resume_training", "True")
    whole = read_files(str(tmp_path / "job" / "checkpoint"), [FIRST])
    where = f"s3://{bucket}/job/checkpoint"
    train("named", "--load_checkpoint", where, "--resume_training", "gpt2_rank_0-1_5.ckpt")
    again = read_files(str(tmp_path / "named" / "checkpoint"), [FIRST])
    assert whole.keys() == again.keys()
    assert all(np.array_equal(whole[name], again[name]) for name in whole)
    with open_listing(where) as place:
        assert FIRST in place.items
    assert "blocks.0.mlp.wide.weight" in read_weights(where, ["blocks.0.mlp.wide.weight"])


@pytest.mark.parametrize(
    "how", ["--callbacks.1.use_legacy_format=False", "--callbacks.1.checkpoint_format=safetensors"]
)
def test_other_layouts_and_formats_are_resumed_to_the_last_bit(train: Any, tmp_path: Path, how: str) -> None:
    train("whole", how)
    train("cut", how, "--callbacks.1.save_checkpoint_steps=4")
    local = tmp_path / "cut" / "checkpoint"
    for newest in [*local.glob("iteration_00000010"), *local.glob("rank_0/*-1_10.safetensors")]:
        shutil.rmtree(newest) if newest.is_dir() else newest.unlink()
    train("cut", how, "--callbacks.1.save_checkpoint_steps=4", "--resume_training", "True")
    lines = [
        (tmp_path / name / "log" / "rank_0" / "loss.csv").read_text().splitlines()[1:] for name in ("whole", "cut")
    ]
    assert lines[1] == lines[0] + lines[0][8:]


def test_a_custom_model_is_set_in_the_config(train: Any) -> None:
    from support.training.own_model import OwnLearner

    assert f"checkpoint/{FIRST}" in train("own", "--model.arch.type=support.training.own_model:OwnLearner")
    assert OwnLearner.steps == 10
    with pytest.raises(UsageError, match="has no attribute 'Nobody'"):
        train("nobody", "--model.arch.type=support.training.own_model:Nobody")


def test_a_run_leaves_no_trace_in_the_process(train: Any, tmp_path: Path) -> None:
    """Otherwise the next run would upload its outputs to the target of the first."""
    before = dict(os.environ)
    train("once", "--only_save_strategy", "True")
    assert dict(os.environ) == before
