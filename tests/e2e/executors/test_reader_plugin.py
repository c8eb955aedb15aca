"""A reader of another distribution, the one of docs/add-a-reader.md: read here, by processes, and out of a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline
from paceline.formats.file_selection import needed_for_diagnosis
from paceline.run import ingest
from paceline.run.run import Run
from paceline.storage.transfer.transfer import transfer
from support.plugin_example import installed, write_example


@pytest.fixture
def recording(tmp_path: Path, bucket: str, own_cache: None) -> Iterator[Path]:
    write_example(tmp_path)
    with pytest.MonkeyPatch.context() as patch, installed(tmp_path, patch):
        yield tmp_path / "run"


def check(run: Run) -> None:
    steps = run.sql("SELECT rank, step, start, duration, computing, exposed, free FROM steps ORDER BY ALL").fetchall()
    assert steps == [
        (0, 10, 1_000_000_000, 400_000_000, 340_000_000, 60_000_000, None),
        (0, 11, 1_400_000_000, 410_000_000, 340_000_000, 70_000_000, None),
        (1, 10, 1_000_000_000, 400_000_000, 380_000_000, 20_000_000, None),
    ]
    assert run.sql("SELECT rank, host, format FROM ranks").fetchall() == [
        (0, "node1", "steplog"),
        (1, "node1", "steplog"),
    ]
    assert [str(warning) for warning in run.file_warnings] == [
        "rank 1: rank-1.steplog: 1 lines are not steps and were left out"
    ]


def test_a_reader_of_another_distribution_is_used(recording: Path, tmp_path: Path) -> None:
    with paceline.open(recording, store=tmp_path / "store") as run:
        check(run)


def test_processes_use_it_too(recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "BATCH_SECTIONS", 1)
    monkeypatch.setattr(ingest, "POOL_BYTES", 0)
    with paceline.open(recording, store=tmp_path / "store", workers=2) as run:
        check(run)


def test_only_its_files_are_fetched_from_a_remote_tree(recording: Path, bucket: str, tmp_path: Path) -> None:
    (recording / "notes.steplog.txt").write_text("nobody reads this")
    transfer(recording, f"s3://{bucket}/steplog").raise_failures()
    with paceline.open(f"s3://{bucket}/steplog", store=tmp_path / "store") as run:
        check(run)
    fetched = {path.name for path in (tmp_path / "cache" / "remote").rglob("*") if path.is_file()}
    assert fetched == {"rank-0.steplog", "rank-1.steplog"}


def test_without_the_distribution_the_files_are_unknown() -> None:
    assert not needed_for_diagnosis("run/rank-0.steplog")
