"""docs/add-a-rule.md works as it stands: its rule is installed and finds its fault."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from paceline.cli.main import application
from paceline.diagnosis.finding import Diagnosis, decode_diagnosis
from paceline.simulate import ClusterSpec, simulate
from support.plugin_example import installed, write_example

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "add-a-rule.md"
SPEC = ClusterSpec(hosts=1, devices=4, dp=4, tp=1, pp=1, steps=4, seed=2)


def diagnosed(run: Path, *options: str) -> Diagnosis:
    done = CliRunner().invoke(application(["diagnose"]), ["diagnose", str(run), "--json", "-", *options])
    assert done.exit_code == 0, done.output
    return decode_diagnosis(done.stdout.encode(), "stdout")


def test_the_rule_of_the_page_finds_the_card_with_the_low_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_example(tmp_path, PAGE)
    simulate(tmp_path / "run", SPEC, ["frequency-drop:2:1.25"])
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    with installed(tmp_path, monkeypatch):
        first = diagnosed(tmp_path / "run", "--rules", "entry:low-clock")
        chinese = diagnosed(tmp_path / "run", "--rules", "entry:low-clock", "--lang", "zh")
        unasked = diagnosed(tmp_path / "run")
    found = {finding.id: finding for finding in first.findings}
    assert {"low-clock", "frequency-drop"} <= set(found) and "low-clock" not in {each.id for each in unasked.findings}
    mine, ours = found["low-clock"], found["frequency-drop"]
    assert mine.subject.ranks == ours.subject.ranks == (2,)
    assert mine.title == "Rank 2 (host node1): clock at 1,440 MHz, rated 1,800 MHz" and mine.see == "own/low-clock"
    assert mine.gain.percent == pytest.approx(ours.gain.percent, abs=2)
    assert msgspec.structs.astuple(mine.evidence[0]) == ("AI Core clock", 1440, 1800, "MHz", "clock", -0.2)
    assert "额定 1,800 MHz" in {each.id: each.title for each in chinese.findings}["low-clock"]


def test_every_file_the_page_names_exists() -> None:
    last = PAGE.read_text(encoding="utf-8").partition("## A rule of Paceline itself")[2]
    named = re.findall(r"`((?:src|ui|tests|docs)/[^`\s]+|pyproject\.toml)`", last)
    assert len(named) >= 9 and [name for name in named if not (ROOT / name).exists()] == []
