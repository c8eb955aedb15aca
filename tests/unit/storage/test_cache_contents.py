"""The cache is listed and emptied; what is in use, young or not ours stays."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from paceline.storage.cache_contents import cache_entries, clean_cache
from paceline.storage.cache_dir import cache_name, cache_part, cache_root


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return cache_root()


def store(root: Path, name: str, *, days: float = 0.0) -> Path:
    path = root / cache_name(name)
    (path / "data").mkdir(parents=True)
    (path / "lock").touch()
    (path / "data" / "a.parquet").write_bytes(b"x" * 1000)
    for each in (path / "data" / "a.parquet", path / "lock", path / "data", path):
        os.utime(each, (time.time() - days * 86400,) * 2)
    return path


def test_entries_with_their_sizes(root: Path) -> None:
    store(root, "run")
    (root / "transfers").mkdir()
    (root / "transfers" / f"{cache_name('x')}.jsonl").write_text("12345")
    assert [(entry.kind, entry.bytes) for entry in cache_entries()] == [("store", 1000), ("transfer", 5)]


def test_old_ones_are_removed_and_others_stay(root: Path) -> None:
    old, young, used = store(root, "old", days=40), store(root, "young"), store(root, "used", days=40)
    (root / "photos").mkdir()  # $PACELINE_CACHE may point anywhere
    with (used / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = clean_cache(older_than_days=30)
    assert [entry.path for entry in done.removed] == [old]
    assert [entry.path for entry in done.in_use] == [used]
    assert not old.exists()
    assert young.exists() and used.exists() and (root / "photos").exists()
    clean_cache()
    assert [path.name for path in root.iterdir()] == ["photos"]


def test_the_cache_is_private(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert root.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("PACELINE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "paceline").mkdir(mode=0o755)
    assert cache_root().stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    monkeypatch.setenv("PACELINE_CACHE", str(shared))
    assert cache_root().stat().st_mode & 0o777 == 0o775
    assert cache_part("unpacked").stat().st_mode & 0o777 == 0o700
