"""A backend of another package: registered through an entry point, used by `paceline job` like ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from paceline.core.plugins import plugins
from paceline.jobs.backends import GROUP
from support.jobs.workloads import write_job

TESTS = Path(__file__).parents[2]


@pytest.fixture
def toy_package(tmp_path: Path) -> Path:
    """A directory for PYTHONPATH: the metadata of an installed package that registers the backend `toy`."""
    site = tmp_path / "site"
    metadata = site / "toy_jobs-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-jobs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\ntoy = support.jobs.toy_backend:create_backend\n")
    return site


def paceline(*words: object, path: list[Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    before = os.environ.get("PYTHONPATH")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, path), *([before] if before else [])])}
    command = [sys.executable, "-m", "paceline.cli.main", *map(str, words)]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)


def test_ours_are_registered_as_everybodys_are() -> None:
    assert {"local", "slurm", "modelarts"} <= set(plugins(GROUP))
    registered = {point.name for point in distribution("paceline").entry_points.select(group=GROUP)}
    assert registered == {"local", "slurm", "modelarts"}


def test_a_job_runs_on_a_backend_of_another_package(tmp_path: Path, toy_package: Path) -> None:
    description = write_job(tmp_path, backend="toy", ranks=1, backend_options={"greeting": "good evening"})
    done = paceline("job", "submit", description, "--into", "job1", path=[toy_package, TESTS], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "good evening from the toy backend" in done.stdout and "rank 0 step 1" in done.stdout
    assert (tmp_path / "job1" / "output" / "train_url" / "throughput_0.json").read_text() == "100.5"

    shown = paceline("job", "list", "--json", path=[toy_package, TESTS], cwd=tmp_path)
    (row,) = json.loads(shown.stdout)
    assert (row["backend"], row["status"]["phase"]) == ("toy", "completed")


def test_without_that_package_the_backends_there_are_named(tmp_path: Path) -> None:
    description = write_job(tmp_path, backend="sluurm")
    done = paceline("job", "submit", description, path=[], cwd=tmp_path)
    assert done.returncode == 2
    assert "job.yaml:6: unknown backend 'sluurm', did you mean 'slurm'? (known: local, modelarts, slurm)" in done.stderr
    asked = paceline("job", "submit", description, "--backend", "toy", path=[], cwd=tmp_path)
    assert asked.returncode == 2 and "unknown backend 'toy'" in asked.stderr
