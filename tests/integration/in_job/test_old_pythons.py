"""The agent wheel in the Pythons of training jobs, with nothing else installed (make test-matrix does more)."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from paceline.core.agent_wheel import PACKAGES, VERSION, write_agent_wheel
from support.old_pythons import interpreter

_RECORDS = """
import logging; logging.basicConfig(level=logging.INFO)
import sys
import paceline.profiling, paceline.training
from paceline.profiling import DynamicProfilerMonitor, Profiler, Recorder, schedule
from paceline.training import MFLossMonitor, Monitored, ObsMonitor, TrainingState
from paceline.collect import collect_data
from paceline.collect.container_files import needed_outside_container
assert not {"numpy", "msgspec", "duckdb"} & set(sys.modules), "imports more than the standard library"
with Recorder("rec") as recorder, Monitored([MFLossMonitor()], TrainingState(total_steps=20)) as loop:
    for step in range(20):
        recorder.step()
        loop.step_end(loss=1.0)
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("agent")
    wheel = write_agent_wheel(directory)
    assert wheel.name == f"paceline-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "site")
    return directory / "site"


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10"])
def test_profiling_recorder_and_monitors_need_only_the_standard_library(
    unpacked: Path, version: str, tmp_path: Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run(
        [python, "-S", "-W", "error", "-c", _RECORDS], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "step:[" in done.stdout + done.stderr
    assert list((tmp_path / "rec").rglob("*.*"))


@pytest.mark.parametrize("version", ["3.8", "3.9"])
def test_every_in_job_module_compiles_and_annotations_of_structs_evaluate(
    unpacked: Path, version: str, tmp_path: Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    sources = [
        str(unpacked / "paceline" / package) for package in PACKAGES if (unpacked / "paceline" / package).is_dir()
    ]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    done = subprocess.run([python, "-m", "compileall", "-q", *sources], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


_COMMANDS = """
import sys, paceline
from paceline.cli.main import IN_JOB, application
for name in IN_JOB:
    application([name])
ours = {name: module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "paceline"}
assert all(file.startswith(sys.argv[1]) for file in ours.values() if file), ours
assert not {"numpy", "duckdb"} & set(sys.modules), "in-job commands import the analysis"
"""


def test_every_in_job_command_is_complete_in_the_agent(unpacked: Path, tmp_path: Path) -> None:
    """A module that the wheel leaves behind would be missed only in the job."""
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    words = [sys.executable, "-c", _COMMANDS, str(unpacked)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
