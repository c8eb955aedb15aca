"""Clocks and groups are derived once for a state of the collectives, and again when those change."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.run import run as room
from paceline.run.run import Run
from paceline.simulate import ClusterSpec, simulate

SPEC = ClusterSpec(hosts=1, devices=4, dp=2, tp=1, pp=2, steps=2, layers=2, micro_batches=2, seed=1)


def derived(run: Run) -> list[list[tuple[object, ...]]]:
    run.load(["collectives"])
    return [run.connection.sql(f"FROM {name} ORDER BY ALL").fetchall() for name in ("clock", "inferred")]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    simulate(tmp_path / "run", SPEC, [], "mindinsight")
    return tmp_path / "run"


def test_a_second_opening_uses_cached_clocks_and_groups(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Run(source, store=tmp_path / "store") as run:
        first = derived(run)
    assert all(first)
    monkeypatch.setattr(room, "derive", lambda *_, **__: pytest.fail("derived again"))
    with Run(source, store=tmp_path / "store") as run:
        assert derived(run) == first


def test_damaged_and_missing_files_are_derived_again(source: Path, tmp_path: Path) -> None:
    with Run(source, store=tmp_path / "store") as run:
        first = derived(run)
    clock, _coordinates, inferred, _kinds = sorted((tmp_path / "store" / "derived").iterdir())
    clock.write_bytes(b"PAR1 no more")
    with Run(source, store=tmp_path / "store") as run:
        assert derived(run) == first
    inferred.unlink()
    with Run(source, store=tmp_path / "store") as run:
        assert derived(run) == first


def test_other_collectives_have_other_clocks(source: Path, tmp_path: Path) -> None:
    with Run(source, store=tmp_path / "store") as run:
        derived(run)
    kept = {path.name for path in (tmp_path / "store" / "derived").iterdir()}
    simulate(tmp_path / "other", ClusterSpec(**{**SPEC.__dict__, "steps": 3}), [], "mindinsight")
    for path in (tmp_path / "other").rglob("*"):
        if path.is_file():
            target = source / path.relative_to(tmp_path / "other")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    with Run(source, store=tmp_path / "store") as run:
        again = derived(run)
    with Run(source, store=tmp_path / "fresh") as run:
        assert derived(run) == again
    now = {path.name for path in (tmp_path / "store" / "derived").iterdir()}
    assert len(now) == 4 and not now & kept
