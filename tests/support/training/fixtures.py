"""An S3 server per test process for uploads of training; credentials, home and cache are isolated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

_LAUNCHER = (
    "RANK",
    "RANK_ID",
    "WORLD_SIZE",
    "RANK_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "DEVICE_NUM",
    "DEVICE_NUM_PER_NODE",
    "REMOTE_SAVE_URL",
    "LOCAL_DEFAULT_PATH",
    "PACELINE_RUN_ID",
    "MINDSPORE_DUMP_CONFIG",
    "MA_JOB_DIR",
)


@pytest.fixture(autouse=True)
def no_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in _LAUNCHER:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
