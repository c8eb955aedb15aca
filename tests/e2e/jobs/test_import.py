"""The original modelarts_config.py: read, never run; its keys never in the description."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.bench.bench_plan import load_bench_plan
from paceline.core.errors import UsageError
from paceline.jobs import load_job
from paceline.jobs.aisbench.aisbench_config import read_aisbench_config
from paceline.jobs.aisbench.import_config import to_job_description
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


def test_the_other_session_is_read_and_keys_are_kept_when_asked(config: Path, tmp_path: Path) -> None:
    done = paceline("job", "import", config, "-o", "v2.yaml", "--version", "V2", "--save-keys", env={}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "session_config_v2 was read (V2); the file also has session_config: --version V1 reads it" in done.stderr
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


V2_OF_THE_VENDOR = CONFIG.replace(
    "'/bucket/resnet/code/', 'boot_file': '/bucket/resnet/code/src/train.py'",
    "'/sample/lcm/', 'boot_file': '/sample/lcm/train.py'",
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An unpacked ais-bench package, its first session filled in, the second one as the vendor ships it."""
    root = tmp_path / "train_huawei_train_mindspore_resnet"
    for name, text in {
        "code/config/modelarts_config.py": V2_OF_THE_VENDOR.replace(
            "'nas_type': None",
            "'nas_type': 'nfs', 'nas_share_addr': '192.168.0.5:/share', 'nas_mount_path': '/home/work/nas'",
        ),
        "code/config/config.sh": "#!/bin/bash\nexport PYTHON_COMMAND=python3.7\nexport SINGLESERVER_MODE=True # alone\n"
        "export BASE_PATH=$(cd $(dirname $0); pwd)\nTRAIN_DATA_PATH='/home/data'\n",
        "code/config.json": '{"testid": "t", "tester_server_ip": "10.1.2.3", "tester_server_port": 9527}',
        "code/system.json": "{}",
        "code/code/src/train.py": "",
        "ais-bench-stubs": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_package_is_imported_in_one_command(package: Path, tmp_path: Path) -> None:
    done = paceline("job", "import", package, env={}, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.split() == ["job.yaml", "bench.yaml"], done.stderr
    job = load_job(tmp_path / "job.yaml")
    assert (job.job_name, job.code_url, job.nodes) == ("resnet50", "obs://bucket/resnet/code/", 2)
    assert job.single_server_mode and (Path(job.code_dir) / job.boot_file).is_file()
    assert [(each.server, each.path) for each in job.modelarts.mounts] == [("192.168.0.5:/share", "/home/work/nas")]
    assert (job.modelarts.region, job.modelarts.site) == ("cn-north-4", "example.com")
    assert "session_config was read (V1, ais-bench's default)" in done.stderr and "--version V2 reads it" in done.stderr
    for left_out in (
        "PYTHON_COMMAND=python3.7",
        "BASE_PATH: config.sh sets it by running",
        "TRAIN_DATA_PATH",
        "credentials",
    ):
        assert f"left out: {left_out}" in done.stderr
    plan = load_bench_plan(tmp_path / "bench.yaml")
    assert plan.job == job and plan.tester is not None and plan.tester.read_text().startswith('{"testid"')
    assert paceline("job", "import", package, env={}, cwd=tmp_path).returncode == 2, "nothing is overwritten"


def test_config_sh_chooses_the_session(package: Path, tmp_path: Path) -> None:
    script = package / "code" / "config" / "config.sh"
    script.write_text("export MODELARTS_VERSION=V2\nexport SINGLESERVER_MODE=True\nexport SINGLESERVER_MODE=False\n")
    done = paceline("job", "import", package, "-o", "jobs/v2.yaml", env={}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    job = load_job(tmp_path / "jobs" / "v2.yaml") if (package / "code/code/train.py").exists() else None
    described = yaml.safe_load((tmp_path / "jobs" / "v2.yaml").read_text())
    assert job is None and described["code_url"] == "obs://sample/lcm/" and "single_server_mode" not in described
    assert "train.py does not exist yet" in done.stderr


def test_a_public_region_needs_no_site(config: Path) -> None:
    config.write_text(CONFIG.replace("https://obs.example.com", "obs.cn-north-4.myhuaweicloud.com"))
    described = to_job_description(read_aisbench_config(config), "code")
    assert described["modelarts"] == {"region": "cn-north-4", "project_id": "0123456789abcdef0123456789abcdef"}
