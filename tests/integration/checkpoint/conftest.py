"""Journals are kept per test, and fsync is off: no test simulates a power failure."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PACELINE_CACHE", str(cache))
    monkeypatch.setattr("os.fsync", lambda _: None)
    return cache
