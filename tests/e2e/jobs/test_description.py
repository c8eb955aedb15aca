"""Descriptions: what is wrong is said with file and line, all at once, and nothing of them is run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.core.errors import UsageError
from paceline.jobs import JobDescription, YamlDocument, load_job
from paceline.jobs.description import ModelArtsSettings
from paceline.jobs.job_plan import make_job_plan
from paceline.jobs.modelarts.endpoint import endpoint_of
from paceline.jobs.modelarts.pre_start import pre_start_files, pre_start_script
from support.jobs.workloads import in_the_cloud, write_job


def refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        load_job(path)
    return str(error.value).replace(str(path), "job.yaml")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("hyperparamters: {lr: 1}", "job.yaml:3: unknown key 'hyperparamters', did you mean 'hyperparameters'?"),
        ("modelarts:\n  endpont: x", "job.yaml:4: unknown key 'endpont', did you mean 'endpoint'?"),
        ("nodes: two", "job.yaml:3: nodes: expected int, got str"),
        ("nodes: 0", "job.yaml:3: nodes: expected int >= 1"),
        ("hyperparameters:\n  lr: 1\n  layers: [1, 2]", "job.yaml:5: hyperparameters.layers: expected bool"),
        ("engine: {name: torch}", "job.yaml:3: engine: missing: version"),
        ("pre_start:\n  wheels:\n  - a.whl\n  - 7", "job.yaml:6: pre_start.wheels.1: expected str, got int"),
        ("backend: moon", "job.yaml:3: unknown backend 'moon' (known: local, modelarts, slurm)"),
        ("boot_file: twice.py", "job.yaml:3: duplicate key 'boot_file'"),
        ("ranks: [", "job.yaml:4: not readable as YAML"),
        ("a: !!python/object/apply:os.system [exit]", "job.yaml:3: not readable as YAML: could not determine"),
        ("a: &a [*a]", "nested too deeply"),
        ("inputs: {data: " + "x" * 300 + "}", "does not exist"),  # too long for any file name
        ("pre_start: {wheels: [" + "x" * 300 + ".whl]}", "not found"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(lines: str, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path, f"job_name: gpt2\nboot_file: train.py\n{lines}\n")


def test_all_problems_are_said_at_once(tmp_path: Path) -> None:
    said = refused(
        tmp_path,
        "job_name: gpt 2\nbackend: modelarts\nboot_file: train.py\ncode_dir: nowhere\ninputs: {data_url: here}\n"
        "environment: {MA_X: 1}\npre_start:\n  log_levels: {GLOG_v: 7, GLOG: 1}\nhyperparameters: {data_url: 1}\n",
    ).splitlines()
    assert [line.partition(": ")[0] for line in said] == [
        "job.yaml:1",
        "job.yaml:4",
        "job.yaml:5",
        "job.yaml:9",
        "job.yaml:6",
        "job.yaml:8",
        "job.yaml:8",
        "job.yaml:2",
        "job.yaml:2",
        "job.yaml:2",
        "job.yaml:2",
        "job.yaml:5",
    ]
    assert "GLOG_v: 7 is not in 0 … 4" in said[5] and "flavor" in said[9]


def test_a_few_lines_that_unfold_to_billions_are_refused(tmp_path: Path) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "expands to more than" in refused(tmp_path, bomb)


def test_paths_count_from_the_file_and_modelarts_spelling_is_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    path = write_job(tmp_path / "jobs", outputs={"train_url": "../results"})
    monkeypatch.chdir("/")
    job = load_job(path)
    assert job.code_dir == str(tmp_path / "jobs" / "code")
    plan = make_job_plan(job, "j", tmp_path / "j")
    assert Path(plan.outputs["train_url"]).resolve() == tmp_path / "results"
    cloud = write_job(tmp_path / "jobs", **in_the_cloud("b", code_url="/b/code/", inputs={"d": "/b/data/"}))
    assert (load_job(cloud).code_url, load_job(cloud).inputs) == ("obs://b/code/", {"d": "obs://b/data/"})


def test_arguments_are_those_modelarts_would_give(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = write_job(
        tmp_path, inputs={"data_url": "data"}, hyperparameters={"lr": 0.1, "distribute": True, "name": "a b"}
    )
    plan = make_job_plan(load_job(path), "j", tmp_path / "j")
    assert plan.arguments() == [
        f"--data_url={tmp_path}/data",
        f"--train_url={tmp_path}/j/output/train_url",
        "--lr=0.1",
        "--distribute=True",
        "--name=a b",
    ]


def test_the_pre_start_script_installs_what_is_uploaded_into_run(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    (tmp_path / "code" / "run").mkdir()
    for name in ("run/our own.whl", "run/Ascend-cann_8.run"):
        (tmp_path / "code" / name).write_bytes(b"x")
    write_job(
        tmp_path,
        single_server_mode=True,
        pre_start={
            "wheels": ["run/our own.whl"],
            "packages": ["run/Ascend-cann_8.run"],
            "log_levels": {"ASCEND_GLOBAL_LOG_LEVEL": 3},
        },
    )
    job = load_job(path)
    text = pre_start_script(job)
    assert text is not None
    assert text.splitlines()[:4] == [
        "#!/bin/bash",
        "# Written by paceline from the job description.",
        "export SINGLESERVER_MODE=True",
        "export ASCEND_GLOBAL_LOG_LEVEL=3",
    ]
    assert """"$here"/run/'our own.whl' || exit 1""" in text and text.index("cann_8.run") < text.index("our own.whl")
    assert set(pre_start_files(job)) == {"run/our own.whl", "run/Ascend-cann_8.run"}


@pytest.mark.parametrize("user", ["1000", "0"])
def test_the_pre_start_script_upgrades_cann_as_root_and_ends_where_that_fails(tmp_path: Path, user: str) -> None:
    """Run for real, with programs of the test's own in place of sudo, id, pip and CANN's package."""
    path = write_job(tmp_path)
    bucket, programs = tmp_path / "bucket", tmp_path / "programs"
    for directory in (tmp_path / "code" / "run", bucket / "run", programs):
        directory.mkdir(parents=True)
    for name in ("own.whl", "cann.run"):
        (tmp_path / "code" / "run" / name).touch()
    package = bucket / "run" / "cann.run"
    package.write_text(f'#!/bin/sh\necho "cann $*" >> {tmp_path}/calls; [ "$2" = "$WORKS" ]\n')
    for name, script in {
        "sudo": f'echo "sudo $(basename $1)" >> {tmp_path}/calls; exec "$@"',
        "id": f"echo {user}",
        "pip": f'echo "pip $2" >> {tmp_path}/calls',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    pre_start = {"wheels": ["run/own.whl"], "packages": ["run/cann.run"], "agent": False}
    write_job(tmp_path, pre_start=pre_start)
    (bucket / "ma-pre-start.sh").write_text(pre_start_script(load_job(path)) or "")

    def run(works: str) -> tuple[int, list[str]]:
        (tmp_path / "calls").write_text("")
        environment = {"PATH": f"{programs}:/usr/bin:/bin", "WORKS": works}
        done = subprocess.run(["bash", str(bucket / "ma-pre-start.sh")], env=environment, check=False)
        return done.returncode, (tmp_path / "calls").read_text().splitlines()

    sudo = [] if user == "0" else ["sudo chmod"]
    as_root = [] if user == "0" else ["sudo cann.run"]
    installed = [*sudo, *as_root, "cann --quiet --upgrade", "pip --no-deps", "pip --find-links"]
    assert run("--upgrade") == (0, installed)
    fresh = [
        *sudo,
        *as_root,
        "cann --quiet --upgrade",
        *as_root,
        "cann --quiet --full",
        "pip --no-deps",
        "pip --find-links",
    ]
    assert run("--full") == (0, fresh)
    assert run("--neither") == (1, fresh[:-2])


def test_where_modelarts_is_comes_from_the_nearest_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {
        "access_key": "k",
        "secret_access_key": "s",
        "region_name": "cn-north-4",
        "modelarts_endpoint": "ma.private",
    }
    (tmp_path / "access.json").write_text(json.dumps({"access_config": stored}))
    (tmp_path / "access.json").chmod(0o600)
    monkeypatch.setenv("PACELINE_ACCESS", str(tmp_path / "access.json"))

    def endpoint(**keys: str) -> str:
        return endpoint_of(ModelArtsSettings(**keys))

    assert endpoint(endpoint="http://127.0.0.1:1/") == "http://127.0.0.1:1"
    assert endpoint(site="cn-central-221.ovaijisuan.com") == "https://modelarts.cn-central-221.ovaijisuan.com"
    assert endpoint() == "https://ma.private" == endpoint(region="cn-north-4")
    assert endpoint(region="cn-south-1") == "https://modelarts.cn-south-1.myhuaweicloud.com"


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
@example(b"? {a: 1}\n: 2")
@example(b"<<: 1")
@example(b"? [a]\n: 2")
@example(b"a: 0x" + b"9" * 100)
@example(b"a: 9999-99-99")
def test_any_bytes_are_a_document_or_one_clear_error(data: bytes) -> None:
    try:
        YamlDocument.parse(data, Path("job.yaml")).convert(JobDescription)
    except UsageError as error:
        assert str(error).startswith("job.yaml")


def test_problems_of_all_kinds_are_told_together(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "job_name: x\nboot_file: train.py\ncode_dir: nocode\nbackend: slrm\nnodes: two\nhyperparamters: {a: 1}\n"
        "slurm: {cpus_per_task: many}\npre_start: {wheels: [1, a.whl]}\n"
    )
    with pytest.raises(UsageError) as caught:
        load_job(tmp_path / "job.yaml")
    told = [line.removeprefix(f"{tmp_path}/job.yaml:") for line in str(caught.value).splitlines()]
    assert [line.partition(": ")[0] for line in told] == ["6", "5", "7", "8", "4", "3"], told
    assert "did you mean 'hyperparameters'?" in told[0] and told[1].startswith(
        "5: nodes: expected `int`".replace("`", "")
    )
