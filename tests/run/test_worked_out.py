"""Clocks and groups are worked out once for a state of the collectives, and anew when those change."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.run import run as room
from paceline.run.run import Run
from paceline.simulate import ClusterSpec, simulate

SPEC = ClusterSpec(hosts=1, devices=4, dp=2, tp=1, pp=2, steps=2, layers=2, micro_batches=2, seed=1)


def worked_out(run: Run) -> list[list[tuple[object, ...]]]:
    run.load(["collectives"])
    return [run.connection.sql(f"FROM {name} ORDER BY ALL").fetchall() for name in ("clock", "inferred")]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    simulate(tmp_path / "run", SPEC, [], "mindinsight")
    return tmp_path / "run"


def test_a_second_opening_recalls_clocks_and_groups(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Run(source, store=tmp_path / "store") as run:
        first = worked_out(run)
    assert all(first)
    monkeypatch.setattr(room, "clock_offsets", lambda _: pytest.fail("worked out again"))
    monkeypatch.setattr(room, "infer_groups", lambda _: pytest.fail("worked out again"))
    with Run(source, store=tmp_path / "store") as run:
        assert worked_out(run) == first


def test_damaged_and_missing_files_are_worked_out_again(source: Path, tmp_path: Path) -> None:
    with Run(source, store=tmp_path / "store") as run:
        first = worked_out(run)
    clock, inferred = sorted((tmp_path / "store" / "worked-out").iterdir())
    clock.write_bytes(b"PAR1 no more")
    with Run(source, store=tmp_path / "store") as run:
        assert worked_out(run) == first
    inferred.unlink()
    with Run(source, store=tmp_path / "store") as run:
        assert worked_out(run) == first


def test_other_collectives_have_other_clocks(source: Path, tmp_path: Path) -> None:
    with Run(source, store=tmp_path / "store") as run:
        worked_out(run)
    kept = {path.name for path in (tmp_path / "store" / "worked-out").iterdir()}
    simulate(tmp_path / "other", ClusterSpec(**{**SPEC.__dict__, "steps": 3}), [], "mindinsight")
    for path in (tmp_path / "other").rglob("*"):
        if path.is_file():
            target = source / path.relative_to(tmp_path / "other")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    with Run(source, store=tmp_path / "store") as run:
        anew = worked_out(run)
    with Run(source, store=tmp_path / "fresh") as run:
        assert worked_out(run) == anew
    now = {path.name for path in (tmp_path / "store" / "worked-out").iterdir()}
    assert len(now) == 2 and not now & kept
