"""Benchmarks in tests: nothing of the user's is read or written; one S3 server for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.storage.servers import S3Server


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "PACELINE_ACCESS", "PACELINE_TESTER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LANG", "C.UTF-8")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("weed") / "server")
    server.start()
    yield server
    server.stop(hard=True)
