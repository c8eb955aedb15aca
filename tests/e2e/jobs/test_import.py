"""The original modelarts_config.py: read, never run; its keys never in the description."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.core.errors import UsageError
from paceline.jobs import load_job
from paceline.jobs.aisbench_config import read_aisbench_config
from support.storage.servers import paceline

CONFIG = """
from easydict import EasyDict as ed

access_config = ed({
    # 登录需要的ak sk信息
    'access_key': 'AKIMPORTED',
    'secret_access_key': 'sk-imported-secret',
    'server': 'https://obs.example.com',
    'region_name': 'cn-north-4',
    'project_id': '0123456789abcdef0123456789abcdef',
    'iam_endpoint': '', 'obs_endpoint': '', 'modelarts_endpoint': '',
})
session_config = ed({
    'hyperparameters': [{'label': 'epoch_size', 'value': '90'}, {'label': 'device_num', 'value': 8}],
    'inputs': '/bucket/imagenet/',
    'code_dir': '/bucket/resnet/code/',
    'boot_file': '/bucket/resnet/code/src/train.py',
    'job_name': 'resnet50',
    'framework_type': 'Ascend-Powered-Engine',
    'framework_version': 'MindSpore-1.3-cann_5.0.2-python3.7-euleros2.8-aarch64',
    'pool_id': None,
    'train_instance_type': 'modelarts.kat1.4xlarge',
    'train_instance_count': 2,
    'nas_type': None,
    'out_base_url': '/bucket/result/',
    'job_description_prefix': 'resnet 测试',
})
session_config_v2 = ed({
    'parameters': [{'name': 'epoch_size', 'value': '90'}],
    'code_dir': '/bucket/resnet/code/', 'boot_file': '/bucket/resnet/code/src/train.py', 'job_name': 'resnet50-v2',
    'framework_type': 'Ascend-Powered-Engine', 'framework_version': 'mindspore_1.3.0', 'pool_id': 'pool-1',
    'train_instance_type': '', 'out_base_url': '/bucket/result/', 'inputs': '/bucket/imagenet/',
})
session_config_v2.train_instance_count = 4
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "code" / "src").mkdir(parents=True)
    (tmp_path / "code" / "src" / "train.py").write_text("")
    path = tmp_path / "modelarts_config.py"
    path.write_text(CONFIG)
    return path


def test_a_config_becomes_a_description_that_can_be_submitted(config: Path, tmp_path: Path) -> None:
    done = paceline("job", "import", config, "--version", "V1", env={}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    job = load_job(tmp_path / "job.yaml")
    assert (job.job_name, job.nodes, job.ranks, job.flavor) == ("resnet50", 2, 4, "modelarts.kat1.4xlarge")
    assert (job.code_url, job.boot_file) == ("obs://bucket/resnet/code/", "src/train.py")
    assert (job.inputs, job.output_url) == ({"data_url": "obs://bucket/imagenet/"}, "obs://bucket/result/")
    assert job.hyperparameters == {"epoch_size": "90", "device_num": 8}
    assert job.engine and job.engine.version.startswith("MindSpore-1.3") and job.naming == "version"
    assert (job.modelarts.region, job.modelarts.project_id[:4], job.description) == (
        "cn-north-4",
        "0123",
        "resnet 测试",
    )
    said = (tmp_path / "job.yaml").read_text() + done.stdout + done.stderr
    assert "AKIMPORTED" not in said and "sk-imported" not in said
    assert paceline("job", "import", config, env={}, cwd=tmp_path).returncode == 2, "nothing is overwritten"


def test_the_newer_session_wins_and_keys_are_kept_when_asked(config: Path, tmp_path: Path) -> None:
    done = paceline("job", "import", config, "-o", "v2.yaml", "--save-keys", env={}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    described = yaml.safe_load((tmp_path / "v2.yaml").read_text())
    assert (described["job_name"], described["nodes"], described["pool_id"]) == ("resnet50-v2", 4, "pool-1")
    assert "flavor" not in described and described["naming"] == "timestamp" and described["ranks"] == 8
    kept = tmp_path / "home" / ".config" / "paceline" / "access.json"
    assert "sk-imported-secret" in kept.read_text() and stat.S_IMODE(kept.stat().st_mode) == 0o600
    again = paceline("job", "import", config, "-o", "v3.yaml", "--save-keys", env={}, cwd=tmp_path)
    assert again.returncode == 2 and "not changed" in again.stderr


@pytest.mark.parametrize(
    "line",
    [
        "import os; os.system('touch ran')",
        "session_config_v2.job_name = open('ran', 'w').name",
        "access_config = ed({'access_key': __import__('os').environ['HOME']})",
        "for x in (1,): pass",
        "session_config['job_name'] = 'x'",
    ],
)
def test_what_would_have_to_be_run_is_refused_with_its_line(line: str, config: Path, tmp_path: Path) -> None:
    config.write_text(f"{CONFIG}{line}\n")
    with pytest.raises(UsageError, match=r"modelarts_config.py:\d+: only literal values are read"):
        read_aisbench_config(config)
    assert not (tmp_path / "ran").exists()


def test_a_key_with_a_wrong_kind_is_named_without_its_value(config: Path) -> None:
    config.write_text(CONFIG.replace("'sk-imported-secret'", "['sk-imported-secret']"))
    with pytest.raises(UsageError, match="secret_access_key") as error:
        read_aisbench_config(config)
    assert "sk-imported" not in str(error.value)


@given(st.text(max_size=200))
@example("session_config = ed({'job_name': 1})")
@example("session_config = ed(" + "[" * 150 + "]" * 150 + ")")
@example("session_config = ed({**{}})")
@example("session_config = ed({[]: 1})")
@example("session_config = -'a'\x00")
def test_any_text_is_a_config_or_one_clear_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "modelarts_config.py"
    path.write_text(text, errors="replace")
    with pytest.raises(UsageError, match="modelarts_config"):
        read_aisbench_config(path)
