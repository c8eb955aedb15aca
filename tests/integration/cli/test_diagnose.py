"""`paceline diagnose` as users run it: where its files go, what it examines, and what it is told by them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.output.one_file_page import STATIC
from paceline.simulate import ClusterSpec, simulate

Diagnose = Callable[..., subprocess.CompletedProcess[str]]
PACELINE = Path(sys.executable).with_name("paceline")
needs_page = pytest.mark.skipif(not (STATIC / "report.js").exists(), reason="the report's page is not built: make ui")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded") / "run"
    simulate(root, ClusterSpec(hosts=1, devices=4, tp=1, pp=1, steps=4, seed=5), ["slow-rank:2:1.4"])
    return root


@pytest.fixture
def diagnose(recorded: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Diagnose:
    cache = tmp_path_factory.getbasetemp() / "cache"

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PACELINE_CACHE": str(cache), "LC_ALL": "C.UTF-8"}
        command = [str(PACELINE), "diagnose", str(recorded), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)

    return run


@needs_page
def test_the_report_goes_where_everybody_looks_for_it(diagnose: Diagnose, tmp_path: Path) -> None:
    done = diagnose()
    assert done.returncode == 0, done.stderr
    assert "paceline-report/report.html" in done.stdout and "Rank 2" in done.stdout
    assert {path.name for path in (tmp_path / "paceline-report").iterdir()} == {"report.html", "diagnosis.json"}
    told = json.loads((tmp_path / "paceline-report" / "diagnosis.json").read_text())
    assert told["findings"][0]["id"] == "slow-rank"
    diagnose("--out", "elsewhere")
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {"report.html", "diagnosis.json"}


def test_json_on_stdout_is_alone_and_leaves_no_files(diagnose: Diagnose, tmp_path: Path) -> None:
    done = diagnose("--json", "-")
    assert json.loads(done.stdout)["schema"] == "paceline.diagnosis/1"
    assert not list(tmp_path.iterdir())
    diagnose("--json", tmp_path / "deep" / "answer.json")
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


@needs_page
def test_html_on_stdout_is_alone(diagnose: Diagnose, tmp_path: Path) -> None:
    done = diagnose("--html", "-", "--json", "answer.json")
    assert done.stdout.startswith("<!doctype html>") and done.stdout.endswith("</html>\n")
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]
    both = diagnose("--html", "-", "--json", "-")
    assert both.returncode == 2 and "only one of them" in both.stderr


def test_one_step_is_examined_alone(diagnose: Diagnose) -> None:
    assert json.loads(diagnose("--json", "-", "--step", 2).stdout)["run"]["steps"] == [2]
    assert json.loads(diagnose("--json", "-", "--steps", "2-3").stdout)["run"]["steps"] == [2, 3]
    both = diagnose("--step", 2, "--steps", "2-3")
    assert both.returncode == 2 and "--step and --steps exclude each other" in both.stderr
    none = diagnose("--step", 77)
    assert none.returncode == 2 and "in these steps" in none.stderr


def test_where_the_time_goes_is_said_last_in_both_languages(diagnose: Diagnose) -> None:
    english = diagnose("--json", "answer.json").stdout
    chinese = diagnose("--json", "answer.json", "--lang", "zh").stdout
    assert "step      compute" in english and "迭代时间  计算" in chinese
    assert "self time per step" in english and "每步自身耗时" in chinese and "self time" not in chinese


def test_a_hardware_profile_of_ones_own_counts(diagnose: Diagnose, tmp_path: Path) -> None:
    profile = tmp_path / "ours.toml"
    profile.write_text("[memory]\nsizes = [1000]\n[transport.HCCS]\nbandwidth = 0.001\n")
    assert diagnose("--json", "-", "--hardware", profile).returncode == 0
    profile.write_text("[transport.HCCS]\nbandwidth = -3\n")
    wrong = diagnose("--hardware", profile)
    assert wrong.returncode == 1
    assert wrong.stderr == f"paceline: {profile}: transport.HCCS.bandwidth: expected a number above 0, got -3\n"


def test_mfu_is_told_where_the_cards_are_named(diagnose: Diagnose, tmp_path: Path) -> None:
    profile = tmp_path / "ours.toml"
    profile.write_text('generation = "910B3"\n')
    told = json.loads(diagnose("--json", "-", "--hardware", profile).stdout)["run"]["mfu"]
    assert 0 < told < 1
    profile.write_text('generation = "twice"\n[peak_tflops]\ntwice = 589.8\n')
    assert json.loads(diagnose("--json", "-", "--hardware", profile).stdout)["run"]["mfu"] == pytest.approx(
        told / 2, abs=1e-4
    )
    assert json.loads(diagnose("--json", "-").stdout)["run"]["mfu"] is None


@needs_page
def test_the_files_are_there_even_if_nobody_reads_the_screen(recorded: Path, tmp_path: Path) -> None:
    command = f"{PACELINE} diagnose {recorded} | true"
    environment = {**os.environ, "PACELINE_CACHE": str(tmp_path / "cache")}
    subprocess.run(command, shell=True, env=environment, check=True, cwd=tmp_path, capture_output=True)
    assert (tmp_path / "paceline-report" / "report.html").exists()


def test_a_place_that_cannot_be_written_is_named(diagnose: Diagnose, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    refused = diagnose("--json", tmp_path / "taken" / "answer.json")
    assert refused.returncode == 1 and "taken/answer.json: cannot be written" in refused.stderr
    refused = diagnose("--out", tmp_path / "taken")
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
