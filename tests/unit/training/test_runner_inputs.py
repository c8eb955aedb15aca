"""What `paceline train` reads before it trains: MindRecord without MindSpore, names of models, requirements.txt."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from paceline.core.errors import UsageError
from paceline.training.reference.mindrecord import mindrecord_blocks, mindrecord_files
from paceline.training.runner.config import ModelConfig, ModelSection, RunConfig
from paceline.training.runner.modes import _initial_weights, requirements_file


def test_mindrecord_is_refused_by_name_where_mindspore_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mindspore", None)
    (tmp_path / "wiki.train.mindrecord").write_bytes(b"\x01")
    (tmp_path / "wiki.train.mindrecord.db").write_bytes(b"\x01")
    assert mindrecord_files(tmp_path) == [tmp_path / "wiki.train.mindrecord"]
    with pytest.raises(UsageError, match="is a MindRecord file, and MindSpore, which reads them, is not installed"):
        mindrecord_blocks(mindrecord_files(tmp_path), 16, 256)


def test_a_models_name_is_no_path_when_training_and_explained_when_it_is_needed() -> None:
    model = ModelSection(model_config=ModelConfig(checkpoint_name_or_path="gpt2"))
    config = RunConfig(run_mode="train", model=model)
    assert _initial_weights(config) == ""
    with pytest.raises(UsageError, match="'gpt2' is the name of a model that MindFormers downloads"):
        _initial_weights(msgspec.structs.replace(config, run_mode="finetune"))


def test_requirements_of_the_code_directory_are_installed_on_modelarts_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MA_JOB_DIR", raising=False)
    assert requirements_file(True) is False and requirements_file("r.txt") == "r.txt"
    (tmp_path / "code").mkdir()
    monkeypatch.setenv("MA_JOB_DIR", str(tmp_path))
    assert requirements_file(True) is False
    (tmp_path / "code" / "requirements.txt").write_text("")
    assert requirements_file(True) == tmp_path / "code" / "requirements.txt"
    assert requirements_file(False) is False
