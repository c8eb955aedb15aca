"""One description on three backends: the real reference training, and outcomes of one schema."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from paceline.jobs import JobOutcome
from support.jobs.slurm_cluster import SlurmCluster
from support.jobs.standin import StandIn
from support.jobs.workloads import REFERENCE, in_the_cloud, write_job
from support.storage.servers import S3Server, _free_ports, paceline


@pytest.mark.parametrize("backend", ["local", "slurm", "modelarts"])
def test_the_reference_training_runs_and_leaves_its_results_in_the_bucket(
    backend: str, tmp_path: Path, s3: S3Server, bucket: str, modelarts: StandIn, request: pytest.FixtureRequest
) -> None:
    if backend == "slurm":
        request.getfixturevalue("slurm")
    s3.client().putContent(bucket, "data/book.txt", content="The slowest rider sets the pace. " * 70)
    job = write_job(
        tmp_path,
        code=REFERENCE,
        inputs={"data_url": f"obs://{bucket}/data/"},
        **in_the_cloud(
            bucket,
            environment={"MASTER_PORT": _free_ports(1)[0], "OMP_NUM_THREADS": 1},
            hyperparameters={"runner_config.epochs": 1, "use_parallel": True},
            slurm={"partition": "tests"},
        ),
    )
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
        "warnings",
    }
    assert "step" in Path(outcome.logs[0]).read_text() and outcome.status.started and outcome.status.ended
    results = tmp_path / "job7" / "output" / "train_url"
    assert (results / "ranksize.json").read_text().strip() == "2"
    assert all(float((results / f"throughput_{rank}.json").read_text()) > 0 for rank in (0, 1))
    kept = {item.key for item in s3.client().listObjects(bucket, prefix="out/").body.contents}
    assert any(key.endswith("/throughput_1.json") for key in kept), kept


def test_two_slurm_nodes_train_together(tmp_path: Path, slurm: SlurmCluster) -> None:
    (tmp_path / "book.txt").write_text("The slowest rider sets the pace. " * 70)
    job = write_job(
        tmp_path,
        code=REFERENCE,
        inputs={"data_url": "book.txt"},
        nodes=2,
        ranks=1,
        environment={"OMP_NUM_THREADS": 1},
        hyperparameters={"runner_config.epochs": 1, "use_parallel": True},
        backend="slurm",
    )
    done = paceline("job", "submit", job, "--into", "job8", "--every", 0.2, env=dict(os.environ), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name[-12:] for path in (tmp_path / "job8" / "log").glob("slurm-job-*.log")) == [
        "worker-0.log",
        "worker-1.log",
    ]
    results = tmp_path / "job8" / "output" / "train_url"
    assert {path.name for path in results.glob("*.json")} >= {"throughput_0.json", "throughput_1.json", "ranksize.json"}
