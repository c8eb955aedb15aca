"""Which agent a job's image gets, and how a container installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.agent_wheel import write_agent_wheel
from paceline.core.errors import PacelineError
from paceline.jobs.description import FrameworkEngine, JobDescription, PreStart
from paceline.jobs.modelarts import agent_wheels, install_agent
from paceline.jobs.modelarts.agent_wheels import agent_files, install_step, plan_agent
from paceline.jobs.modelarts.pre_start import pre_start_script


def job(version: str = "", **pre_start: object) -> JobDescription:
    engine = FrameworkEngine(name="Ascend-Powered-Engine", version=version) if version else None
    image = "" if version else "swr/image:1"
    return JobDescription(
        job_name="j", boot_file="train.py", engine=engine, image=image, pre_start=PreStart(**pre_start)
    )


def test_the_engines_name_says_python_and_machine() -> None:
    plan = plan_agent(job("pytorch_2.1.0-cann_8.0.rc1-py_3.9-euler_2.10.7-aarch64"))
    assert (plan.python, plan.machines, plan.extras) == ("3.9", ("aarch64",), ("commands",))
    assert plan_agent(job("MindSpore-1.3-cann_5.0.2-python3.9-euleros2.8")).machines == ("aarch64", "x86_64")
    assert plan_agent(job("mindspore_2.3-py_3.10-x86_64", python="3.11", agent=("storage",))).python == "3.11"


def test_what_cannot_be_installed_is_a_note_and_what_is_not_wanted_is_none() -> None:
    assert "the image has 3.7" in plan_agent(job("mindspore_1.3.0-cann_5.0.2-py_3.7-euler_2.8.3-aarch64")).note
    assert "Python is not known" in plan_agent(job()).note
    assert plan_agent(job(python="3.9")).wanted
    off = plan_agent(job("pytorch_2.1.0-py_3.9-aarch64", agent=False))
    assert not off.wanted and not off.note
    assert install_step(job("pytorch_2.1.0-py_3.9-aarch64", agent=False)) is None


def test_the_part_without_requirements_needs_no_download(tmp_path: Path) -> None:
    described = job("pytorch_2.1.0-py_3.9-aarch64", agent=())
    files, notes = agent_files(described, tmp_path)
    assert not notes and sorted(Path(name).suffix for name in files) == [".py", ".whl"]
    script = pre_start_script(described)
    assert script is not None and 'python "$here"/run/paceline-agent/install_agent.py || true' in script


def test_wheels_of_a_directory_are_used_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "typer-1-py3-none-any.whl").touch()
    files, _ = agent_files(job("py_3.9", agent_wheels=str(tmp_path / "wheels")), tmp_path / "scratch")
    assert "paceline-agent/typer-1-py3-none-any.whl" in files


def test_a_failed_download_is_one_sentence_and_leaves_no_half_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(PacelineError, match=r"image's Python 3\.9 could not be downloaded: pip: ") as caught:
        agent_files(job("py_3.9-aarch64"), tmp_path / "scratch")
    assert "agent_wheels" in str(caught.value.hint)
    assert not list((tmp_path / "cache" / "agent").glob("*/aarch64"))


def test_wheels_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    asked: list[str] = []

    def download(wanted: object, python: str, machine: str, place: Path) -> None:
        asked.append(machine)
        place.mkdir(parents=True)
        (place / "typer-1-py3-none-any.whl").touch()
        (place / f"msgspec-1-{machine}.whl").touch()

    monkeypatch.setattr(agent_wheels, "_download", download)
    for _ in range(2):
        files, _ = agent_files(job("py_3.9"), tmp_path / "scratch")
    assert asked == ["aarch64", "x86_64"]
    assert {Path(name).name for name in files} >= {
        "typer-1-py3-none-any.whl",
        "msgspec-1-aarch64.whl",
        "msgspec-1-x86_64.whl",
    }


def test_a_container_installs_once_and_keeps_a_paceline_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_agent.tempfile, "gettempdir", lambda: str(tmp_path))
    installed, steps = [None], list[list[str]]()

    def run(step: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        steps.append(step)
        installed[0] = "0.1.0+agent"
        return subprocess.CompletedProcess(step, 0, b"")

    monkeypatch.setattr(install_agent.subprocess, "run", run)
    monkeypatch.setattr(install_agent, "_installed", lambda: installed[0])
    wheel = write_agent_wheel(tmp_path / "run")
    assert install_agent.main(tmp_path / "run", "commands") == f"installed: {wheel.name}"
    assert "--no-index" in steps[0] and steps[0][-1] == f"{wheel}[commands]"
    assert install_agent.main(tmp_path / "run", "commands").startswith("already installed") and len(steps) == 1
    wheel.write_bytes(wheel.read_bytes() + b"x")
    install_agent.main(tmp_path / "run", "")
    assert "--force-reinstall" in steps[1], "a newer agent replaces an older one"
    installed[0] = "0.2.0"
    assert "its own Paceline 0.2.0" in install_agent.main(tmp_path / "run", "") and len(steps) == 3
    monkeypatch.setattr(install_agent, "OLDEST", (sys.version_info[0], sys.version_info[1] + 1))
    assert "needs Python" in install_agent.main(tmp_path / "run", "")
