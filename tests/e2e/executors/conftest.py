"""One cluster of each kind per test process, with credentials of an S3 server in its environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.executors.clusters import dask_cluster
from support.storage.servers import S3Server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("weed") / "server")
    server.start()
    yield server
    server.stop(hard=True)


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    return s3.bucket()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def dask(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("dask")
    with dask_cluster(directory, {**s3.environment(), "PACELINE_CACHE": str(directory / "cache")}) as address:
        yield address
