"""The one screen: what is not known is not shown as 0, and nothing is said twice."""

from __future__ import annotations

import pytest

from paceline.advice.finding import Diagnosis
from paceline.report.terminal import print_diagnosis


def screen(capsys: pytest.CaptureFixture[str], language: str = "en", **about: object) -> str:
    run = {"ranks": 4, "hosts": 0, "steps": [1], "step_ms": {"median": None}, "warnings": [], **about}
    print_diagnosis(Diagnosis(run, (), -0.0001), language, 5)
    return capsys.readouterr().out


def test_unknown_hosts_and_step_times_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert "4 ranks · 1 step   replay" in screen(capsys)
    assert "4 张卡 · 1 步   原样重放误差 +0.0 %" in screen(capsys, "zh")
    assert "1 rank · 2 hosts · 2 steps · median step 1,412.5 ms" in screen(
        capsys, ranks=1, hosts=2, steps=[3, 4], step_ms={"median": 1412.5}
    )


def test_the_same_warning_is_said_once_and_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    said = screen(capsys, warnings=["rank 0: cannot be read"] * 2 + [f"rank {n}: odd" for n in range(7)])
    assert said.count("rank 0: cannot be read") == 1
    assert "… and 3 more" in said
