"""An S3 server per test process for what training uploads; nobody's keys, home or cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.conftest import bucket, faulty, own_places, proxy, s3

__all__ = ["bucket", "faulty", "own_places", "proxy", "s3"]
_LAUNCHER = (
    "RANK", "RANK_ID", "WORLD_SIZE", "RANK_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "DEVICE_NUM", "DEVICE_NUM_PER_NODE",
    "REMOTE_SAVE_URL", "LOCAL_DEFAULT_PATH", "PACELINE_RUN_ID", "MINDSPORE_DUMP_CONFIG", "MA_JOB_DIR",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in _LAUNCHER:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
