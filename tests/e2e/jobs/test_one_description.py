"""One description on three backends: the real reference training, and outcomes of one schema."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.jobs import JobOutcome, load_job, submit, wait
from support.jobs.images import MINDSPORE_3_9, TORCH_IMAGE
from support.jobs.slurm_cluster import SlurmCluster
from support.jobs.standin import StandIn
from support.jobs.workloads import documented_code, documented_job, in_the_cloud, write_job
from support.old_pythons import interpreter
from support.storage.servers import S3Server, paceline


def in_bucket(described: dict[str, Any], bucket: str) -> dict[str, Any]:
    """The documented description with the names of this test: its bucket, and an engine that this machine can run."""
    text = json.dumps(described).replace("obs://bucket/", f"obs://{bucket}/")
    return {**json.loads(text), "engine": {"name": "Ascend-Powered-Engine", "version": TORCH_IMAGE}}


@pytest.mark.parametrize("backend", ["local", "slurm", "modelarts"])
def test_the_documented_job_runs_verbatim_but_for_names(
    backend: str,
    tmp_path: Path,
    s3: S3Server,
    bucket: str,
    modelarts: StandIn,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On ModelArts in an image with torch and without Paceline: the job installs it from the wheels that were uploaded."""
    pytest.importorskip("torch")
    if backend == "slurm":
        request.getfixturevalue("slurm")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    s3.client().putContent(bucket, "gpt2/data/book.txt", content="The slowest rider sets the pace. " * 70)
    job = write_job(tmp_path, code=documented_code(), **in_bucket(documented_job(cloud=True), bucket))
    done = paceline(
        "job",
        "submit",
        job,
        "--backend",
        backend,
        "--into",
        tmp_path / "job7",
        "--every",
        0.2,
        "--json",
        env=dict(os.environ),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    outcome = msgspec.json.decode(done.stdout, type=JobOutcome)
    assert (outcome.id, outcome.backend, outcome.succeeded) == ("job7", backend, True)
    assert set(json.loads(done.stdout)) == {
        "schema",
        "id",
        "name",
        "backend",
        "status",
        "submitted",
        "logs",
        "outputs",
        "utilisation",
        "warnings",
    }
    assert "step" in Path(outcome.logs[0]).read_text() and outcome.status.started and outcome.status.ended
    results = tmp_path / "job7" / "output" / "train_url"
    assert (results / "ranksize.json").read_text().strip() == "2"
    assert all(float((results / f"throughput_{rank}.json").read_text()) > 0 for rank in (0, 1))
    if backend == "modelarts":
        assert "paceline agent: installed: paceline-" in Path(outcome.logs[0]).read_text()
    kept = {item.key for item in s3.client().listObjects(bucket, prefix="gpt2/out/").body.contents}
    assert any(key.endswith("/throughput_1.json") for key in kept), kept


def test_two_slurm_nodes_train_together(tmp_path: Path, slurm: SlurmCluster) -> None:
    (tmp_path / "book.txt").write_text("The slowest rider sets the pace. " * 70)
    job = write_job(
        tmp_path,
        code=documented_code(),
        **{**documented_job(), "inputs": {"data_url": "book.txt"}, "nodes": 2, "ranks": 1, "backend": "slurm"},
        environment={"OMP_NUM_THREADS": 1},
    )
    done = paceline("job", "submit", job, "--into", "job8", "--every", 0.2, env=dict(os.environ), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name[-12:] for path in (tmp_path / "job8" / "log").glob("slurm-job-*.log")) == [
        "worker-0.log",
        "worker-1.log",
    ]
    results = tmp_path / "job8" / "output" / "train_url"
    assert {path.name for path in results.glob("*.json")} >= {"throughput_0.json", "throughput_1.json", "ranksize.json"}


@pytest.mark.timeout(2400)
def test_the_documented_job_runs_in_an_image_with_python_3_9(
    tmp_path: Path, s3: S3Server, bucket: str, modelarts: StandIn
) -> None:
    """With MindSpore, which has packages for Python 3.9, on one card; else verbatim but for names."""
    if not (MINDSPORE_3_9 / "bin" / "python").exists():
        pytest.skip("no MindSpore for Python 3.9 here (make venv-mindspore-3.9)")
    s3.client().putContent(bucket, "gpt2/data/book.txt", content="The slowest rider sets the pace. " * 70)
    described = in_bucket(documented_job(cloud=True), bucket)
    described |= {"ranks": 1, "flavor": "modelarts.kat1.xlarge", "framework": "mindspore"}
    described["engine"]["version"] = "mindspore_2.3.0-cann_8.0.rc1-py_3.9-euler_2.10.7-x86_64"
    described["hyperparameters"] |= {"framework": "mindspore", "use_parallel": False}
    job = write_job(tmp_path, code=documented_code(), **described)
    done = paceline(
        "job", "submit", job, "--into", tmp_path / "job39", "--every", 0.2, env=dict(os.environ), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    log = next((tmp_path / "job39" / "log").glob("*worker-0.log")).read_text()
    assert "paceline agent: installed: paceline-" in log and "step" in log
    results = tmp_path / "job39" / "output" / "train_url"
    assert float((results / "throughput_0.json").read_text()) > 0 and (results / "ranksize.json").read_text() == "1\n"


AGENT = """
import json, os, pathlib, sys

from paceline.profiling import Recorder
from paceline.cli.main import main

assert sys.version_info[:2] == (3, 9) and "user-job-dir" in __file__
words = dict(word[2:].split("=", 1) for word in sys.argv[1:])
output = pathlib.Path(words["train_url"])
with Recorder(str(output / "light")) as recorder:
    for step in range(5):
        recorder.step()
sys.argv = ["paceline", "rank-table", "generate", "--host", "10.0.0.1", "--devices", "0-1", "-o", str(output / "hccl.json")]
main()
"""


def test_a_job_in_a_bare_python_3_9_imports_paceline_and_runs_its_commands(
    tmp_path: Path, s3: S3Server, bucket: str, modelarts: StandIn
) -> None:
    """Two cards share the container: one installs, the other waits for it."""
    if interpreter("3.9") is None:
        pytest.skip("no Python 3.9 on this machine")
    engine = {"name": "Ascend-Powered-Engine", "version": "mindspore_2.3.0-cann_8.0.rc1-py_3.9-euler_2.10.7-x86_64"}
    job = in_the_cloud(bucket, engine=engine, pre_start={})
    handle = submit(load_job(write_job(tmp_path, code=AGENT, **job)))
    outcome = wait(handle, interval=0.1)
    log = Path(outcome.logs[0]).read_text()
    assert outcome.succeeded, log
    said = sorted(line for line in log.splitlines() if line.startswith("paceline agent: "))
    assert len(said) == 2 and said[0].startswith("paceline agent: already installed"), said
    assert said[1].startswith("paceline agent: installed: paceline-")
    kept = {item.key for item in s3.client().listObjects(bucket, prefix=f"out/{handle.name}/").body.contents}
    assert any(key.endswith("hccl.json") for key in kept) and any("/light/" in key for key in kept), kept
