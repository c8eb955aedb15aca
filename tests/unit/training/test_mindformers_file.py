"""Config files of MindFormers: renamed keys, keys without a meaning here, schedules; all problems are told together."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.core.yaml_lines import YamlFile
from paceline.training.runner.arguments import make_config
from paceline.training.runner.config import LrSchedule, RunConfig
from paceline.training.runner.mindformers_file import lora_targets
from paceline.training.runner.schedule import learning_rate

_FILE = """
trainer: {type: CausalLanguageModelingTrainer}
load_checkpoint: null
remote_save_url: "Please input obs url on AICC platform."
runner_wrapper: {type: MFTrainOneStepCell, scale_sense: {type: DynamicLossScaleUpdateCell, loss_scale_value: 4294967296}}
train_dataset: {data_loader: {type: MindDataset, dataset_dir: ""}, input_columns: [input_ids], numa_enable: False}
model:
  model_config:
    num_hidden_layers: 3
    num_attention_heads: 2
    hidden_dropout_rate: 0.2
    compute_dtype: float16
    checkpoint_name_or_path: gpt2
    pet_config: {pet_type: lora, target_modules: ".*dense1.*|.*dense3.*"}
lr_schedule: {type: PolynomialWithWarmUpLR, learning_rate: 0.001, lr_end: 0.0001, total_steps: -1}
optimizer: {type: FusedAdamWeightDecay, betas: [0.9, 0.95]}
"""


def _config(text: str, *arguments: str) -> RunConfig:
    return make_config(YamlFile.parse(text, Path("run.yaml")), arguments)


def test_a_file_of_mindformers_is_accepted_and_what_has_no_meaning_is_listed_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = _config(_FILE)
    model = config.model.model_config
    assert (model.num_layers, model.num_heads, model.dropout) == (3, 2, 0.2)
    assert (config.optimizer.beta1, config.optimizer.beta2) == (0.9, 0.95)
    assert config.lr_schedule.type == "polynomial" and config.runner_wrapper.scale_sense.loss_scale_value == 2**32
    (record,) = caplog.records
    for key in ("trainer", "train_dataset.input_columns", "runner_wrapper.scale_sense.type", "optimizer.type"):
        assert key in record.getMessage()


def test_a_misspelt_key_is_an_error_also_in_their_files() -> None:
    with pytest.raises(UsageError, match=r"run\.yaml:2: unknown key 'runner_config\.epoch'") as caught:
        _config("trainer: {}\nrunner_config: {epoch: 3, batch_size: 2}\n")
    assert caught.value.hint == "did you mean 'runner_config.epochs'?"


def test_all_problems_are_told_together() -> None:
    text = "sed: 1\nrunner_config:\n  epochs: many\n  batchsize: 2\nlr_schedule: {type: step}\n"
    with pytest.raises(UsageError, match=r"run\.yaml: 4 problems") as caught:
        _config(text)
    told = str(caught.value)
    assert "run.yaml:1: unknown key 'sed'" in told and "run.yaml:4: unknown key 'runner_config.batchsize'" in told
    assert "run.yaml:3: runner_config.epochs: Expected `int`" in told and "run.yaml:5: lr_schedule.type" in told


def test_every_schedule_by_hand() -> None:
    def rate(step: int, **fields: object) -> float:
        return learning_rate(LrSchedule(learning_rate=1.0, lr_end=0.2, **fields), step, 10)  # type: ignore[arg-type]

    assert rate(5, type="polynomial", power=2.0) == pytest.approx(0.2 + 0.8 * 0.25)
    assert rate(5, type="linear") == pytest.approx(0.6)
    assert rate(5, type="cosine") == pytest.approx(0.6)
    assert rate(5, type="cosine", num_cycles=1.0) == pytest.approx(0.2)  # a whole wave: its lowest point
    # Two falls in ten steps: step 5 begins the second one, at 7 of 10 it is at (1 + cos(0.4 pi)) / 2 of the way.
    assert rate(5, type="cosine_with_restarts", num_cycles=2.0) == pytest.approx(1.0)
    assert rate(7, type="cosine_with_restarts", num_cycles=2.0) == pytest.approx(
        0.2 + 0.8 * (1 + math.cos(0.4 * math.pi)) / 2
    )
    assert rate(9, type="constant") == 1.0
    assert rate(0, type="constant", warmup_ratio=0.4, warmup_lr_init=0.2) == pytest.approx(0.4)
    assert rate(9, type="linear", total_steps=4) == pytest.approx(0.2)  # past its end


def test_lora_targets_of_both_kinds() -> None:
    assert lora_targets(["key"]) == ("key",)
    assert lora_targets(".*dense.*") == ("query", "key", "value")
    with pytest.raises(UsageError, match="matches no layer"):
        lora_targets("wq|wk")
    with pytest.raises(UsageError, match="target_modules"):
        lora_targets("(")
