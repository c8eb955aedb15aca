"""msadvisor's arguments, places and result JSON; without its habit of deleting and of exiting 0."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import paceline.output.one_file_page
from paceline.cli.main import application
from paceline.core.errors import PacelineError, UsageError
from paceline.output.msadvisor import dominant_transport, of_longest_rank
from paceline.simulate import ClusterSpec, simulate
from paceline.storage.transfer.transfer import transfer
from support.storage.fixtures import bucket, own_places, s3

__all__ = ["bucket", "own_places", "s3"]

SPEC = ClusterSpec(hosts=1, devices=4, dp=2, tp=2, pp=1, steps=3, layers=4, micro_batches=2, detail_ranks=0)
Door = Callable[..., Result]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("old-door")
    simulate(root / "slow", SPEC, ["slow-rank:2:1.3"], "msadvisor")
    simulate(root / "healthy", SPEC, [], "msadvisor")
    return {"slow": root / "slow", "healthy": root / "healthy"}


@pytest.fixture
def data(recorded: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded["slow"], tmp_path / "data"))


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Door:
    """The command, with a page that need not be built."""
    static = tmp_path / "static"
    static.mkdir()
    (static / "report.js").write_text("'page'")
    (static / "report.css").write_text("")
    monkeypatch.setattr(paceline.output.one_file_page, "STATIC", static)
    options = ("--lang", "en", "--workers", "1", "--store", str(tmp_path / "store"))
    return lambda *words: CliRunner().invoke(application(), ["msadvisor", *map(str, words), *options])


def result_json(directory: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((directory / "hccl_analysis_result.json").read_text())
    return document


def digests(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_overview_and_results_are_where_the_guide_says(data: Path, door: Door) -> None:
    before = digests(data)
    done = door("--rank_size=4", f"--data={data}")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("[Advisor Result]\nCommunication operator bottleneck analysis result")
    assert done.stdout.count("hccl analysis result:") == 3
    assert "its rank id is 2" in done.stdout and "SDMA Communication is the Dominated Bottleneck" in done.stdout
    added = digests(data).keys() - before.keys()
    assert added == {
        "recommendation/hccl_analysis_result.json",
        "recommendation/visualization/hccl_analysis_result.html",
    }
    assert {name: digest for name, digest in digests(data).items() if name not in added} == before


def test_the_result_json_keeps_the_contract(data: Path, door: Door) -> None:
    assert door("--rank_size", "4", "--data", data, "--step", "2").exit_code == 0
    document = result_json(data / "recommendation")
    assert list(document) == ["classType", "errorCode", "summary", "extendResult"]
    assert (document["classType"], document["errorCode"]) == ("1", "0")
    extended = document["extendResult"]
    assert isinstance(extended, list)
    *operators, table = extended
    assert [sorted(entry) for entry in extended] == [["dataType", "extendTitle", "key", "type", "value"]] * len(
        extended
    )
    assert all(entry["type"] == "0" and entry["dataType"] == ["0"] and entry["key"] == [] for entry in operators)
    assert all(entry["extendTitle"].startswith("AllReduce-op") for entry in operators)
    assert table["type"] == "1" and len(table["key"]) == len(table["dataType"]) == len(table["value"][0])
    assert all(isinstance(cell, str) for row in table["value"] for cell in row)


def test_a_second_run_replaces_its_own_results_only(data: Path, door: Door) -> None:
    notes = data / "recommendation" / "visualization" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    for _ in range(2):
        assert door("--rank_size=4", f"--data={data}").exit_code == 0
    assert notes.read_text() == "mine"
    assert sorted(path.name for path in notes.parent.iterdir()) == ["hccl_analysis_result.html", "notes.txt"]


def test_nothing_to_improve_is_error_code_one(recorded: dict[str, Path], tmp_path: Path, door: Door) -> None:
    healthy = Path(shutil.copytree(recorded["healthy"], tmp_path / "healthy"))
    done = door("--rank_size=4", f"--data={healthy}")
    assert "There is no slow rank in the current communication" in done.stdout
    assert result_json(healthy / "recommendation")["errorCode"] == "1"


def test_a_wrong_rank_size_and_a_bad_trace_are_said_and_the_answer_stays(data: Path, door: Door) -> None:
    trace = data / "3" / "profiler" / "hccl_info_3" / "allReduce_5_1" / "iter2.trace"
    trace.write_bytes(trace.read_bytes()[:100])
    done = door("--rank_size=6", f"--data={data}")
    assert done.exit_code == 0, done.output
    assert "--rank_size is 6, but 4 ranks were found; missing: 4, 5" in done.stderr
    assert "iter2.trace" in done.stderr
    assert "its rank id is 2" in done.stdout


def test_a_rank_without_a_step_trace_does_not_stop_the_others(data: Path, door: Door) -> None:
    (data / "3" / "profiler" / "step_trace_raw_3_detail_time.csv").write_bytes(b"\x00\x01 not a table")
    done = door("--rank_size=4", f"--data={data}")
    assert done.exit_code == 0, done.output
    assert "step_trace_raw_3_detail_time.csv" in done.stderr
    assert done.stdout.count("hccl analysis result:") == 3


def test_without_the_page_the_json_is_written_and_the_error_is_clear(
    data: Path, door: Door, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paceline.output.one_file_page, "STATIC", tmp_path / "nowhere")
    done = door("--rank_size=4", f"--data={data}")
    assert done.exit_code != 0
    assert isinstance(done.exception, PacelineError) and "not built" in str(done.exception)
    assert result_json(data / "recommendation")["errorCode"] == "0"


def test_data_and_results_of_a_bucket_are_where_the_guide_says(
    bucket: str, data: Path, door: Door, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert transfer(data, f"obs://{bucket}/profiler").failures == []
    here = tmp_path / "here"
    (here / "profiler").mkdir(parents=True)
    (here / "profiler" / "mine.txt").write_text("kept")
    monkeypatch.chdir(here)
    for _ in range(2):  # the second finds its own results there
        done = door("--rank_size=4", f"--bucket_name=obs://{bucket}/profiler")
        assert done.exit_code == 0, done.output
    assert sorted(here.glob("profiler/**/hccl_info_0/*/iter1.trace"))
    assert (here / "profiler/recommendation/visualization/hccl_analysis_result.html").is_file()
    assert (here / "profiler/mine.txt").read_text() == "kept"


def test_recordings_of_another_job_are_neither_mixed_in_nor_deleted(
    bucket: str, data: Path, door: Door, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert transfer(data, f"obs://{bucket}/profiler").failures == []
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "profiler" / "step_trace_raw_7_detail_time.csv"
    other.parent.mkdir()
    other.write_text("of another job")
    failed = door("--rank_size=4", f"--bucket_name=obs://{bucket}/profiler")
    assert isinstance(failed.exception, UsageError) and "step_trace_raw_7_detail_time.csv" in str(failed.exception)
    assert other.read_text() == "of another job"


def test_failures_are_sentences_and_exit_codes(data: Path, door: Door, tmp_path: Path) -> None:
    for words, said in (
        (["--rank_size=4"], "neither --data nor --bucket_name"),
        (["--rank_size=4", f"--data={tmp_path / 'nowhere'}"], "directory not found"),
        (["--rank_size=4", f"--data={data}", "--step=9"], "--step 9: not recorded"),
    ):
        failed = door(*words)
        assert isinstance(failed.exception, UsageError) and said in str(failed.exception)
    empty = tmp_path / "empty"
    empty.mkdir()
    program = Path(sys.executable).with_name("paceline")
    command = [str(program), "msadvisor", "--rank_size=4", f"--data={empty}"]
    failed_run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed_run.returncode == 2 and "no profile found" in failed_run.stderr
    assert list(empty.iterdir()) == []


def test_of_all_ranks_the_one_that_transfers_longest_counts() -> None:
    """A slow RDMA link of one rank is not outvoted by fast links inside the hosts of all others."""
    rows = [(0, "SDMA", 20), (1, "SDMA", 20), (2, "SDMA", 20), (2, "RDMA", 3), (3, "RDMA", 40), (4, "RDMA", None)]
    assert of_longest_rank(rows) == {"RDMA": 40}
    assert of_longest_rank([]) == {}


def test_the_dominated_bottleneck_is_the_one_that_takes_the_time() -> None:
    """HCCS and PCIE are SDMA: 3 + 1 ms against 5 ms of RDMA, whatever the bytes."""
    assert dominant_transport({"HCCS": 3_000_000, "PCIE": 1_000_000, "RDMA": 5_000_000}, "en") == (
        "RDMA Communication is the Dominated Bottleneck (5.000 of 9.000 ms of transfer time of the rank that transfers longest)"
    )
    assert dominant_transport({"HCCS": 3_000_000, "PCIE": 3_000_000, "RDMA": 5_000_000}, "zh").startswith(
        "SDMA 通信是主要瓶颈"
    )
    assert "does not tell" in dominant_transport({}, "en")
