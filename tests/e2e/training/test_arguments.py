"""Config files and command-line overrides: aliases, nested keys, errors with line numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.errors import PacelineError, UsageError
from paceline.core.yaml_lines import YamlFile
from paceline.training.runner.arguments import make_config, parse
from paceline.training.runner.config import RunConfig
from paceline.training.runner.entrypoint import DEFAULT_CONFIG, find_config

SHIPPED = YamlFile.read(DEFAULT_CONFIG)


def _config(*arguments: str, text: str | None = None, directory: Path | None = None) -> RunConfig:
    path = DEFAULT_CONFIG
    if text is not None:
        assert directory is not None
        path = directory / "run.yaml"
        path.write_text(text)
    return make_config(YamlFile.read(path), arguments)


@pytest.mark.parametrize("name", ["run_gpt2.yaml", "run_gpt2_finetune.yaml", "run_gpt2_lora.yaml"])
def test_shipped_configs_are_found_by_name_and_valid(name: str) -> None:
    config = make_config(YamlFile.read(find_config(Path(name))), [])
    assert (config.model.model_config.pet_config is not None) == ("lora" in name)
    assert config.run_mode == ("train" if name == "run_gpt2.yaml" else "finetune")


def test_documented_arguments_reach_their_keys() -> None:
    config = _config(
        "--run_mode",
        "finetune",
        "--use_parallel",
        "True",
        "--load-checkpoint",
        "a.ckpt",
        "--resume_training=gpt-1_2.ckpt",
        "--remote_save_url=s3://bucket/x?a=b=c",
        "--profile",
        "--only_save_strategy",
        "true",
        "--train_dataset_dir",
        "/data",
        "--eval_dataset_dir=/eval",
        "--epochs",
        "7",
        "--batch_size=3",
        "--gradient_accumulation_steps",
        "2",
        "--sink_mode",
        "False",
        "--num_samples",
        "11",
        "--mode",
        "1",
        "--device_target",
        "CPU",
        "--predict_data",
        "a b",
        "c",
        "--options",
        "seed=5",
        "runner_config.sink_size=4",
        "--output_dir",
        "123",
    )
    assert (config.run_mode, config.use_parallel, config.load_checkpoint) == ("finetune", True, "a.ckpt")
    assert (config.resume_training, config.remote_save_url) == ("gpt-1_2.ckpt", "s3://bucket/x?a=b=c")
    assert config.profile and config.only_save_strategy
    assert (
        config.train_dataset.data_loader.dataset_dir == "/data" and config.train_dataset.data_loader.num_samples == 11
    )
    runner = config.runner_config
    assert (runner.epochs, runner.batch_size, runner.gradient_accumulation_steps, runner.sink_size) == (7, 3, 2, 4)
    assert (config.predict_data, config.seed, config.output_dir) == (["a b", "c"], 5, "123")


def test_nested_keys_and_items_of_lists_are_set() -> None:
    config = _config(
        "--callbacks.1.save_checkpoint_steps=7", "--model.model_config.num_layers", "5", "--callbacks.1.prefix", "x=y"
    )
    assert config.callbacks[1]["save_checkpoint_steps"] == 7 and config.callbacks[1]["prefix"] == "x=y"
    assert config.model.model_config.num_layers == 5


@pytest.mark.parametrize(
    ("argument", "message", "hint"),
    [
        ("--runner_config.epoch=3", "unknown key 'runner_config.epoch'", "did you mean 'runner_config.epochs'?"),
        ("--batchsize=3", "unknown key 'batchsize'", "did you mean 'runner_config.batch_size'?"),
        ("--remote_url=x", "unknown key 'remote_url'", "did you mean 'remote_save_url'?"),
        ("--epochs=many", "runner_config.epochs: Expected `int`", None),
        ("--epochs=0", "runner_config.epochs: Expected `int` >= 1", None),
        ("--seed=-1", "seed: Expected `int` >= 0", None),
        ("--model.model_config.dropout=1", "Expected `float` < 1", None),
        ("--run_mode=trian", "one of train, finetune, eval, predict", None),
        ("--use_parallel=maybe", "use_parallel: Expected `bool`", None),
        ("--callbacks.9.prefix=x", "item 9 not found in a list of 3", "items count from 0"),
        ("--seed.deep=1", "seed is not a section", None),
        ("train", "arguments start with --", None),
    ],
)
def test_invalid_arguments_are_explained(argument: str, message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as error:
        _config(argument)
    assert message in str(error.value)
    if hint:
        assert error.value.hint == hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("run_mode: train\nrunner_config:\n  epoch: 3\n", "run.yaml:3: unknown key 'runner_config.epoch'", "epochs'?"),
        ("run_mode: trian\n", "run.yaml:1: run_mode: Invalid enum value 'trian'; one of train", None),
        ("runner_config:\n  epochs: [1]\n", "run.yaml:2: runner_config.epochs: Expected `int`, got `array`", None),
    ],
)
def test_errors_in_a_file_name_the_line(tmp_path: Path, text: str, message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as error:
        _config(text=text, directory=tmp_path)
    assert message in str(error.value)
    assert hint is None or (error.value.hint or "").endswith(hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nseed: 2\n", "run.yaml:2: duplicate key 'seed'"),
        ("a: [1\n", "run.yaml:2: not readable as YAML"),
        ("- 1\n", "expected keys and values"),
        (
            "seed: !!python/object/apply:os.getcwd []\n",
            "run.yaml:1: not readable as YAML: could not determine a constructor for the tag",
        ),
    ],
)
def test_an_invalid_config_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _config(text=text, directory=tmp_path)


def test_inapplicable_sections_of_mindformers_files_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "trainer:\n  type: CausalLanguageModelingTrainer\nmoe_config:\n  expert_num: 1\nseed: 3\n"
    assert _config(text=text, directory=tmp_path).seed == 3
    assert "run.yaml: keys without effect here: trainer, moe_config" in caplog.text


def test_keys_without_effect_are_logged_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "context:\n  device_target: Ascend\noptimizer:\n  type: SGD\nrunner_config:\n  sink_mode: False\n"
    _config("--parallel.parallel_mode", "1", text=text, directory=tmp_path)
    assert [record.getMessage().partition("run.yaml")[2] for record in caplog.records] == [
        ": keys without effect here: context.device_target, optimizer.type, parallel.parallel_mode"
    ]


def test_a_missing_config_lists_the_shipped_ones() -> None:
    with pytest.raises(UsageError) as error:
        find_config(Path("no.yaml"))
    assert error.value.hint == "shipped with Paceline: run_gpt2.yaml, run_gpt2_finetune.yaml, run_gpt2_lora.yaml"


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(max_size=30), max_size=6))
def test_any_argument_causes_a_usage_error_at_most(words: list[str]) -> None:
    try:
        make_config(SHIPPED, words)
    except PacelineError as error:
        assert str(error)


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=60))
def test_values_after_the_first_equals_sign_are_unchanged(value: str) -> None:
    (override,) = parse([f"--remote_save_url={value}"])
    assert override.text == value
