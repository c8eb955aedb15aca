"""Experts with uneven tokens are no slow cards, and a slow card among even experts is; traces of support/expert_traces.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import paceline
from paceline.diagnosis.finding import Diagnosis
from support import expert_traces


def diagnosed(folder: Path) -> Diagnosis:
    return paceline.diagnose(paceline.open(str(folder), store=folder.parent / "store"))


def blamed(diagnosis: Diagnosis) -> list[str]:
    return [finding.id for finding in diagnosis.findings if finding.severity in ("high", "medium")]


def test_even_experts_are_healthy(tmp_path: Path) -> None:
    expert_traces.write(tmp_path / "run")
    assert blamed(diagnosed(tmp_path / "run")) == []


def test_a_rank_with_popular_experts_is_no_slow_card(tmp_path: Path) -> None:
    expert_traces.write(tmp_path / "run", tokens=expert_traces.hot)
    found = diagnosed(tmp_path / "run")
    assert blamed(found) == ["expert-imbalance"]
    first = found.findings[0]
    assert first.subject.ranks == (3,)
    assert first.gain.step_ms_now == pytest.approx(expert_traces.step_time(expert_traces.hot) / 1e3, rel=0.01)
    assert first.gain.step_ms_fixed == pytest.approx(expert_traces.step_time(expert_traces.even) / 1e3, rel=0.02)


def test_experts_that_are_popular_in_one_layer_each(tmp_path: Path) -> None:
    expert_traces.write(tmp_path / "run", tokens=expert_traces.wandering, seed=1)
    found = diagnosed(tmp_path / "run")
    assert blamed(found) == ["expert-imbalance"]
    assert found.findings[0].gain.step_ms_fixed == pytest.approx(
        expert_traces.step_time(expert_traces.even) / 1e3, rel=0.02
    )


def test_a_slow_card_among_even_experts_is_slow(tmp_path: Path) -> None:
    expert_traces.write(tmp_path / "run", slow={5: 1.3}, seed=2)
    found = diagnosed(tmp_path / "run")
    assert blamed(found) == ["slow-rank"]
    assert found.findings[0].subject.ranks == (5,)
    assert found.findings[0].gain.step_ms_fixed == pytest.approx(
        expert_traces.step_time(expert_traces.even) / 1e3, rel=0.02
    )
