"""`bench resume`: a killed, stopped or lost client loses no finished run; on this machine, Slurm and ModelArts."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from e2e.jobs.conftest import (
    bucket,
    modelarts,
    own_state,
    region,
    region_server,
    s3,
    slurm,
    slurm_cluster,
    standin_server,
)
from paceline.bench.history import load_history
from paceline.bench.progress import BenchProgress
from paceline.bench.result import read_result
from support.bench.result_trees import paceline, read_json
from support.jobs.workloads import in_the_cloud
from support.storage.fixtures import own_places, proxy

__all__ = [
    "bucket",
    "modelarts",
    "own_places",
    "own_state",
    "proxy",
    "region",
    "region_server",
    "s3",
    "slurm",
    "slurm_cluster",
    "standin_server",
]
WORKLOAD = Path(__file__).parents[2] / "support" / "bench" / "workload.py"


def describe(where: Path, **job: object) -> Path:
    """Three runs, of which the third waits for a file."""
    (where / "code").mkdir()
    (where / "gate").mkdir()
    shutil.copy(WORKLOAD, where / "code" / "train.py")
    described = {
        "job_name": "toy",
        "boot_file": "train.py",
        "code_dir": "code",
        "hyperparameters": {"gate": str(where / "gate")},
        **job,
    }
    (where / "bench.yaml").write_text(yaml.safe_dump({"name": "toy", "job": described, "repeat": 3}))
    return where / "bench.yaml"


def until_third_run(where: Path) -> subprocess.Popen[str]:
    """A client whose third run has begun."""
    words = ["bench", "run", where / "bench.yaml", "--out", where / "out"]
    command = [sys.executable, "-m", "paceline.cli.main", *map(str, words)]
    client = subprocess.Popen(command, cwd=where, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    limit = time.monotonic() + 600
    while not (where / "gate" / "run3").exists():
        assert client.poll() is None and time.monotonic() < limit, (client.kill(), client.communicate())
        time.sleep(0.05)
    return client


def end(client: subprocess.Popen[str], number: int) -> str:
    client.send_signal(number)
    _, said = client.communicate(timeout=600)
    return said


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("backend", ["local", "slurm", "modelarts"])
def test_run_three_killed_keeps_runs_one_and_two(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if backend == "slurm":
        request.getfixturevalue("slurm")
        describe(tmp_path, backend="slurm", slurm={"partition": "tests"})
    elif backend == "modelarts":
        request.getfixturevalue("modelarts")
        describe(tmp_path, ranks=2, **in_the_cloud(request.getfixturevalue("bucket")))
    else:
        describe(tmp_path)
    end(until_third_run(tmp_path), signal.SIGKILL)
    before = BenchProgress.read(tmp_path / "out")
    runs = [before.find(2 if backend == "modelarts" else 1, number) for number in (1, 2, 3)]
    assert before.finished == 2 and runs[2] is not None and runs[2].repetition is None
    (tmp_path / "gate" / "open").touch()
    done = paceline("bench", "resume", tmp_path / "out", "--lang", "en", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "run 2 of 3: kept" in done.stderr and "re-attached to" in done.stderr
    result = read_result(tmp_path / "out" / "result.json")
    assert [each.job_id for each in result.largest.repetitions] == [run.job_id for run in runs if run is not None]
    assert len(list((tmp_path / "gate").glob("run*"))) == 3, "nothing was run twice"
    assert result.provenance.nodes and all(node.host for node in result.provenance.nodes)
    if backend == "slurm":
        assert result.provenance.nodes[0].host in ("paceline-a", "paceline-b")


def test_ctrl_c_says_what_was_stopped_and_how_to_go_on(tmp_path: Path) -> None:
    describe(tmp_path)
    client = until_third_run(tmp_path)
    said = end(client, signal.SIGINT)
    assert client.returncode == 130 and "stopped the running job" in said, said
    assert f"2 finished runs kept; continue with: paceline bench resume {tmp_path / 'out'}" in said
    done = paceline("bench", "resume", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_json(tmp_path / "out" / "result.json")["measurements"][0]["throughput"]["count"] == 3
    assert len(list((tmp_path / "gate").glob("run*"))) == 4, "the stopped run is run again"


def test_a_changed_description_is_not_resumed(tmp_path: Path) -> None:
    bench = describe(tmp_path)
    (tmp_path / "gate" / "open").touch()
    assert paceline("bench", "run", bench, "--repeat", 1, "--out", tmp_path / "out", cwd=tmp_path).returncode == 0
    again = paceline("bench", "resume", tmp_path / "out", cwd=tmp_path)
    assert again.returncode == 0 and "run 1 of 1: kept" in again.stderr
    assert len(load_history(name="toy").results) == 1, "the same result is in the history once"
    assert json.loads((tmp_path / "out" / "progress.json").read_text())["schema"] == "paceline.bench-progress/1"
    bench.write_text(bench.read_text() + "accuracy: false\n")
    refused = paceline("bench", "resume", tmp_path / "out", cwd=tmp_path)
    assert refused.returncode == 2 and "was changed" in refused.stderr
    nowhere = paceline("bench", "resume", tmp_path, cwd=tmp_path)
    assert nowhere.returncode == 2 and "no benchmark was started here" in nowhere.stderr
