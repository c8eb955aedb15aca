"""`paceline job` with ModelArts as a user types it; in one process, because the vendor's SDK takes seconds to load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from typer.testing import CliRunner, Result

from paceline.cli.main import application
from support.jobs.standin import StandIn
from support.jobs.workloads import in_the_cloud, write_job
from support.storage.servers import S3Server


def job(*words: object) -> Result:
    return CliRunner().invoke(application(["job"]), ["job", *map(str, words)])


def test_a_cloud_job_is_started_listed_looked_at_and_stopped(
    tmp_path: Path, s3: S3Server, bucket: str, modelarts: StandIn
) -> None:
    keys = in_the_cloud(bucket, nodes=2, hyperparameters={"wait_for": str(tmp_path / "never")})
    description = write_job(tmp_path, **keys)
    started = job("submit", description, "--detach", "--into", "job7", "--json")
    number = json.loads(started.stdout)["remote_id"]
    (shown,) = json.loads(job("list", "--json").stdout)
    assert (shown["id"], shown["backend"], shown["remote_id"]) == ("job7", "modelarts", number)
    name = shown["name"]
    assert name.startswith("quick-20") and modelarts.jobs[number].body["metadata"]["name"] == name
    assert job("status", name).stdout.startswith("job7: ")
    while "rank 3 step 0" not in job("logs", "job7", "--worker", 1).stdout:
        pass  # the test's time limit ends this
    assert job("stop", "quic").exit_code != 0 and modelarts.jobs[number].phase == "Running"
    assert job("stop", name).stdout in ("job7: stopping\n", "job7: stopped\n")
    followed = job("follow", "job7", "--every", 0.05)
    assert followed.exit_code == 1 and "[worker 1] rank 3 step 0" in followed.stdout
    assert "has already ended: stopped" in job("stop", number).stderr
    kept = [path for place in ("job7", "state", "home") for path in (tmp_path / place).rglob("*") if path.is_file()]
    assert len(kept) > 4 and not any(s3.secret.encode() in path.read_bytes() for path in kept)


def test_a_job_of_another_machine_is_followed_by_its_exact_name(
    tmp_path: Path, bucket: str, modelarts: StandIn
) -> None:
    description = write_job(tmp_path, **in_the_cloud(bucket, naming="exact"))
    assert job("submit", description, "--detach").exit_code == 0
    shutil.rmtree(tmp_path / "state")
    shutil.rmtree(tmp_path / "paceline-jobs")
    assert job("follow", "quick").exit_code != 0, "this machine does not know it"
    followed = job("follow", "quick", "--job", description, "--every", 0.05)
    assert followed.exit_code == 0 and "rank 1 step 1" in followed.stdout
    (result,) = (tmp_path / "paceline-jobs").glob("*/output/train_url/throughput_1.json")
    assert result.read_text() == "101.5"
