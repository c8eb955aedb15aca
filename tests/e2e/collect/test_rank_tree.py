"""`paceline collect obs://…`: the {rank} tree from a bucket, missing ranks reported; and remote sources read directly."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import paceline as library
from paceline.storage.transfer.transfer import transfer
from support.collect.clusters import add_raw_data, simulated, tables_of
from support.storage.servers import SshHost, paceline
from support.storage.trees import QUICK, content


def env() -> dict[str, str]:
    names = ("HOME", "PACELINE_CACHE")
    return {name: os.environ[name] for name in os.environ if name in names or name.startswith("AWS_")}


def test_all_ranks_are_collected_and_read_the_same(bucket: str, tmp_path: Path) -> None:
    source = simulated(tmp_path / "job", "msadvisor")
    transfer(source, f"obs://{bucket}/profiler", QUICK)
    done = paceline("collect", f"obs://{bucket}/profiler", "--ranks", 4, "-o", tmp_path / "out", env=env())
    assert done.returncode == 0, done.stderr
    assert tables_of(tmp_path / "out", tmp_path / "a") == tables_of(source, tmp_path / "b")
    again = paceline("collect", f"obs://{bucket}/profiler", "--ranks", 4, "-o", tmp_path / "out", env=env())
    assert again.returncode == 0 and again.stdout.count(" 0 files transferred") == 1


def test_missing_ranks_are_reported_and_the_rest_is_collected(bucket: str, tmp_path: Path) -> None:
    transfer(simulated(tmp_path / "job", "msadvisor"), f"obs://{bucket}/profiler", QUICK)
    done = paceline("collect", f"obs://{bucket}/profiler", "--ranks", 6, "-o", tmp_path / "out", env=env())
    assert done.returncode == 1 and "no data of 2 of 6 ranks: 4, 5" in done.stderr
    assert {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")} == set("0123")


def test_a_misspelt_url_is_an_error_not_an_empty_success(bucket: str, tmp_path: Path) -> None:
    done = paceline("collect", f"obs://{bucket}/profilr", "-o", tmp_path / "out", env=env())
    assert done.returncode == 2 and "no such object or prefix" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_remote_source_opens_like_a_local_one_and_fetches_only_what_is_read(bucket: str, tmp_path: Path) -> None:
    source = simulated(tmp_path / "job", "ascend-text")
    add_raw_data(next(source.glob("*_ascend_pt")), 3_000_000)
    transfer(source, f"obs://{bucket}/job", QUICK)
    assert tables_of(f"obs://{bucket}/job", tmp_path / "a") == tables_of(source, tmp_path / "b")
    fetched = content(Path(os.environ["PACELINE_CACHE"]) / "remote")
    assert fetched and not any("slice" in name or "FRAMEWORK" in name or "sqlite" in name for name in fetched)
    shown = paceline("show", f"obs://{bucket}/job", "steps", "-f", "json", env=env())
    assert shown.returncode == 0 and len(json.loads(shown.stdout)) == 8, shown.stderr


def test_a_rank_removed_from_the_bucket_is_removed_from_the_cache(bucket: str, tmp_path: Path) -> None:
    from paceline.storage.stores.open_store import open_store

    source = simulated(tmp_path / "job", "msadvisor")
    transfer(source, f"s3://{bucket}/job", QUICK)
    with library.open(f"s3://{bucket}/job") as run:
        assert len(run.table("ranks").fetchall()) == 4
    store = open_store(f"s3://{bucket}/job")
    for item in list(store.list_files()):
        if item.key.startswith("3/"):
            store.remove(item.key)
    store.close()
    with library.open(f"s3://{bucket}/job") as run:
        assert run.sql("select max(rank) from steps").fetchall() == [(2,)]


def test_a_source_over_ssh_opens_like_a_local_one(hosts: list[SshHost], tmp_path: Path) -> None:
    source = simulated(tmp_path / "job", "kineto")
    assert tables_of(hosts[0].url(source), tmp_path / "a") == tables_of(source, tmp_path / "b")


def test_a_missing_prefix_is_one_sentence(bucket: str, tmp_path: Path) -> None:
    done = paceline("show", f"s3://{bucket}/nowhere", env=env())
    assert done.returncode == 2 and "no such object or prefix" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("scheme", ["obs", "file"])
def test_breakdown_and_msadvisor_accept_any_url(bucket: str, tmp_path: Path, scheme: str) -> None:
    job = simulated(tmp_path / "job", "msadvisor")
    transfer(job, f"obs://{bucket}/job", QUICK)
    place = f"obs://{bucket}/job" if scheme == "obs" else f"file://{job}"
    (tmp_path / "here").mkdir()
    for words in (("breakdown", place), ("msadvisor", "--rank_size=4", f"--data={place}")):
        done = paceline(*words, env=env(), cwd=tmp_path / "here")
        assert done.returncode == 0, done.stderr
    results = (tmp_path / "here" if scheme == "obs" else job) / "recommendation"
    assert (results / "hccl_analysis_result.json").exists()
