"""`paceline demo`: a cluster with a fault, its diagnosis, and the truth, in an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.main import application


def test_the_demo_finds_what_the_simulator_injected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(application(("demo",)), ["demo", "--fault", "slow-rank:5:1.3", "--seed", "1"])
    assert shown.exit_code == 0, shown.output
    headline = next(line for line in shown.stdout.splitlines() if line.lstrip().startswith("1  "))
    assert "Rank 5" in headline
    assert "The simulator had injected slow-rank 5: " in shown.stdout
    assert (tmp_path / "paceline-demo" / "report.html").is_file()


def test_an_existing_directory_is_not_touched(tmp_path: Path) -> None:
    shown = CliRunner().invoke(application(("demo",)), ["demo", str(tmp_path)])
    assert shown.exit_code == 1
    assert "already exists" in str(shown.exception)
    assert list(tmp_path.iterdir()) == []
