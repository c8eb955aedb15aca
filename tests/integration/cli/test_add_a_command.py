"""docs/add-a-command.md works as written: its module, run as the command it describes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from paceline.cli import main
from paceline.simulate import ClusterSpec, simulate

GUIDE = Path(__file__).parents[3] / "docs" / "add-a-command.md"


def test_the_documented_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    module = ModuleType("paceline.cli.slowest")
    exec(compile(code, str(GUIDE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "paceline.cli.slowest", module)
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    spec = ClusterSpec(hosts=1, devices=4, dp=4, tp=1, pp=1, steps=3, layers=2)
    simulate(tmp_path / "run", spec, ["slow-rank:2:1.5"], "kineto")

    said = CliRunner().invoke(main.application(("slowest", "kb")), ["slowest", str(tmp_path / "run")])

    assert said.exit_code == 0, said.output
    assert re.fullmatch(r"rank 2: \+4\d\.\d %\n", said.stdout)
