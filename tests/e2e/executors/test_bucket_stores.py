"""A store in a bucket: unused files are removed after a day, files of others never."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from hashlib import md5
from pathlib import Path

import pytest

import paceline
from e2e.executors.test_executors import content
from paceline.run import ingest as index_module
from paceline.run.tables import store as stores
from paceline.simulate import ClusterSpec, simulate
from paceline.storage.stores.open_store import open_store

STRANGERS = ("notes.txt", "steps.parquet", "mine-00000001-00000.parquet")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    simulate(tmp_path / "run", ClusterSpec(hosts=1, devices=2, dp=2, tp=1, pp=1, steps=2, layers=1), [], "ascend-text")
    return tmp_path / "run"


@pytest.fixture
def url(bucket: str, tmp_path: Path) -> str:
    return f"s3://{bucket}/{tmp_path.name}"


def index(source: Path, url: str, *tables: str) -> None:
    with paceline.open(source, store=url) as run:
        run.load(tables or ("steps",))


def there(url: str) -> set[str]:
    with closing(open_store(f"{url}/data")) as store:
        return {item.key for item in store.list_files()}


def put(url: str, name: str, text: bytes = b"not ours") -> None:
    with closing(open_store(url)) as store:
        store.write(name, text, md5(text).hexdigest())


def change(source: Path, seconds: int) -> None:
    """As if every file had been recorded again at that time."""
    for path in source.rglob("*"):
        if path.is_file():
            os.utime(path, (seconds, seconds))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [1e9]
    monkeypatch.setattr(stores.time, "time", lambda: now[0])
    yield now


def test_unused_files_are_removed_after_a_day(source: Path, url: str, clock: list[float]) -> None:
    index(source, url)
    first = there(url)
    for name in STRANGERS:
        put(f"{url}/data", name)
    put(f"{url}/data", "steps-00000099-00000-deadbeef.parquet")  # of a killed writer
    change(source, 1_000)
    index(source, url)
    assert first < there(url), "others may still be copying them"
    clock[0] += stores.RETENTION_S + 1
    second = there(url) - first - {*STRANGERS, "steps-00000099-00000-deadbeef.parquet"}
    change(source, 2_000)
    index(source, url)
    left = there(url)
    assert second < left and set(STRANGERS) < left
    assert not first & left and "steps-00000099-00000-deadbeef.parquet" not in left


def test_nothing_is_removed_while_the_manifest_is_not_ours(
    source: Path, url: str, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    index(source, url)
    first = there(url)
    change(source, 1_000)
    index(source, url)
    clock[0] += stores.RETENTION_S + 1
    send = stores.upload_bytes

    def overtaken(text: bytes, place: str, name: str) -> None:
        send(text, place, name)
        put(place, name, b"{}")

    monkeypatch.setattr(stores, "upload_bytes", overtaken)
    change(source, 2_000)
    index(source, url)
    assert first < there(url)


def test_two_machines_writing_at_once_cost_time_and_no_rows(
    source: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with paceline.open(source, store=tmp_path / "alone") as run:
        expected = content(run)
    with paceline.open(source, store=url) as one:
        monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "another machine"))
        other = paceline.open(source, store=url)
        fetch = stores.RunStore._fetch
        monkeypatch.setattr(stores.RunStore, "_fetch", lambda store: frozenset())  # neither sees the other
        one.load(["steps"])
        monkeypatch.setattr(index_module, "BATCH_SECTIONS", 4)  # so that the same name could mean fewer rows
        other.load(["steps"])
        one._store.save()  # the last manifest is that of the first
        monkeypatch.setattr(stores.RunStore, "_fetch", fetch)
        other.close()
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "a third"))
    with paceline.open(source, store=url) as run:
        assert content(run) == expected


def test_a_store_that_was_removed_is_written_again(source: Path, url: str) -> None:
    index(source, url)
    before = there(url)
    with closing(open_store(url)) as store:
        for item in list(store.list_files()):
            store.remove(item.key)
    index(source, url)
    assert there(url) == before
