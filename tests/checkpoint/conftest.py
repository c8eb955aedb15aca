"""Journals of these tests stay with the test, and no test waits for the disk: none of them cuts the power."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PACELINE_CACHE", str(cache))
    monkeypatch.setattr("os.fsync", lambda _: None)
    return cache
