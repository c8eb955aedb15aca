"""kill -9 at random moments of sync, collect and reading into a bucket: the next run is right, and clears what was left."""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

import paceline
from paceline.simulate import ClusterSpec, simulate
from support.collect.clusters import simulated
from support.storage.fixtures import bucket, own_places, s3

__all__ = ["bucket", "own_places", "s3"]

KILLS = int(os.environ.get("PACELINE_KILLS", "4"))
"""Of each kind; `make fuzz` asks for more."""


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()


def started(*words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "paceline", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(*words: object) -> float:
    """Seconds that the command took."""
    begin = time.monotonic()
    process = started(*words)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said.decode()
    return time.monotonic() - begin


def kill_at_random(words: list[object], seconds: float, chance: random.Random) -> None:
    """Start it and kill it, sooner or later within the time it takes."""
    process = started(*words)
    time.sleep(chance.uniform(0.2, 1.0) * seconds)
    process.kill()
    process.communicate(timeout=600)


def content(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def files(root: Path) -> Path:
    """Many small files and two of several parts."""
    for number in range(60):
        path = root / f"rank_{number % 4}" / f"part-{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(secrets.token_bytes(20_000))
    for number in range(2):
        (root / f"large-{number}.ckpt").write_bytes(secrets.token_bytes(24 << 20))
    return root


def test_sync_up_and_down_again_after_kills(tmp_path: Path, bucket: str) -> None:
    source, chance = files(tmp_path / "source"), random.Random(1)
    seconds = finish("sync", source, f"s3://{bucket}/first")
    for number in range(KILLS):
        url, target = f"s3://{bucket}/again-{number}", tmp_path / f"target-{number}"
        kill_at_random(["sync", source, url], seconds, chance)
        finish("sync", source, url)
        kill_at_random(["sync", url, target], seconds, chance)
        half = content(target) if target.exists() else {}
        whole = content(source)
        assert {name: digest for name, digest in half.items() if name in whole and digest != whole[name]} == {}
        finish("sync", url, target)
        assert content(target) == whole


def test_collect_from_a_bucket_after_kills(tmp_path: Path, bucket: str) -> None:
    chance = random.Random(2)
    run = simulated(tmp_path / "job", "msadvisor")
    url = f"s3://{bucket}/job"
    finish("sync", run, url)
    seconds = finish("collect", url, "--ranks", 4, "-o", tmp_path / "whole")
    whole = content(tmp_path / "whole")
    for number in range(KILLS):
        target = tmp_path / f"target-{number}"
        kill_at_random(["collect", url, "--ranks", 4, "-o", target], seconds, chance)
        finish("collect", url, "--ranks", 4, "-o", target)
        found = content(target)
        assert found.keys() == whole.keys()
        assert {name for name in found if found[name] != whole[name] and name.endswith((".csv", ".txt"))} == set()


def test_a_store_in_a_bucket_after_kills(tmp_path: Path, bucket: str) -> None:
    run, chance = tmp_path / "run", random.Random(3)
    simulate(
        run, ClusterSpec(hosts=1, devices=4, dp=4, tp=1, pp=1, steps=3, layers=2), ("slow-rank:2:1.6",), "ascend-text"
    )
    seconds = finish("index", run, "--store", f"s3://{bucket}/first")
    with paceline.open(run, store=f"s3://{bucket}/first") as opened:
        expected = opened.sql("SELECT rank, count(*) FROM kernels GROUP BY rank ORDER BY rank").fetchall()
    for number in range(KILLS):
        store = f"s3://{bucket}/store-{number}"
        kill_at_random(["index", run, "--store", store], seconds, chance)
        finish("index", run, "--store", store)
        with paceline.open(run, store=store) as opened:
            assert opened.sql("SELECT rank, count(*) FROM kernels GROUP BY rank ORDER BY rank").fetchall() == expected
            assert opened.warnings == []
