"""From a bucket to the answer: `paceline msadvisor --bucket_name` and `paceline diagnose obs://…` as users run them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from paceline.formats.file_selection import needed_for_diagnosis
from support.collect.clusters import add_raw_data
from support.storage.faults import Proxy
from support.storage.servers import paceline
from support.storage.trees import content

CLUSTER = ("--hosts", 1, "--devices", 4, "--dp", 4, "--tp", 1, "--pp", 1, "--steps", 3, "--layers", 4)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of four ranks: {rank}/profiler, including raw data."""
    place = tmp_path_factory.mktemp("job") / "profiler"
    done = paceline("simulate", place, *CLUSTER, "--layout", "msadvisor", "--fault", "slow-rank:2:1.3", env={})
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert (place / str(rank) / "profiler").is_dir()
        add_raw_data(place / str(rank) / "profiler", 200_000)
    return place


@pytest.fixture
def uploaded(job: Path, faulty: str) -> str:
    done = paceline("copy", job, f"obs://{faulty}/job/profiler", env=env())
    assert done.returncode == 0, done.stderr
    return f"obs://{faulty}/job/profiler"


def env(**others: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "PACELINE_", "HOME"))}
    return {**kept, **others}


def fetched(proxy: Proxy) -> set[str]:
    """Objects whose content was requested, as keys below the job's profiler directory."""
    paths = [unquote(urlsplit(each.path).path) for each in proxy.seen if each.method == "GET"]
    return {path.partition("/job/profiler/")[2] for path in paths if "/job/profiler/" in path}


def test_msadvisor_reads_the_bucket_and_writes_its_results_here(
    uploaded: str, job: Path, proxy: Proxy, tmp_path: Path
) -> None:
    words = ("msadvisor", "--rank_size=4", f"--bucket_name={uploaded}", "--lang", "en")
    proxy.forget()
    done = paceline(*words, env=env(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    needed = {key for key in content(job) if needed_for_diagnosis(key)}
    assert fetched(proxy) == needed and len(needed) < len(content(job))
    result = json.loads((tmp_path / "profiler" / "recommendation" / "hccl_analysis_result.json").read_text())
    assert "rank 2" in json.dumps(result).lower()
    page = (tmp_path / "profiler" / "recommendation" / "visualization" / "hccl_analysis_result.html").read_text()
    assert page.lower().startswith("<!doctype html>") and "slow-rank" in page
    assert content(tmp_path / "cache" / "remote").keys().isdisjoint({"hwts.data.join.0.slice_0"})
    proxy.forget()
    assert paceline(*words, env=env(), cwd=tmp_path).returncode == 0
    assert fetched(proxy) == set()  # the cache has it all


def test_diagnose_finds_the_slow_rank_in_the_bucket(uploaded: str, job: Path, proxy: Proxy, tmp_path: Path) -> None:
    proxy.forget()
    done = paceline("diagnose", uploaded, "--json", tmp_path / "answer.json", env=env())
    assert done.returncode == 0, done.stderr
    assert fetched(proxy) == {key for key in content(job) if needed_for_diagnosis(key)}
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["run"]["ranks"] == 4 and answer["run"]["source"] == uploaded
    first = answer["findings"][0]
    assert (first["id"], first["subject"]["ranks"]) == ("slow-rank", [2])


@pytest.mark.parametrize("command", ["msadvisor", "diagnose"])
def test_wrong_credentials_are_one_line(uploaded: str, tmp_path: Path, command: str) -> None:
    where = ["--rank_size=4", f"--bucket_name={uploaded}"] if command == "msadvisor" else [uploaded]
    done = paceline(command, *where, env=env(AWS_SECRET_ACCESS_KEY="not-the-secret"), cwd=tmp_path)
    assert done.returncode != 0 and not done.stdout
    lines = done.stderr.strip().splitlines()
    assert len(lines) <= 2 and "403" in lines[0] and uploaded.rpartition("/")[0] in lines[0], done.stderr
    assert "not-the-secret" not in done.stderr
    assert not (tmp_path / "recommendation").exists()
