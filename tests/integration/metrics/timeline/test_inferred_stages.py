"""Stages that nobody declared, from who sends first."""

from __future__ import annotations

from pathlib import Path

import pytest

import paceline
from paceline.diagnosis.context import DiagnosisContext
from paceline.metrics.timeline.inferred_stages import inferred_stages
from paceline.simulate import ClusterSpec, simulate


@pytest.mark.parametrize(
    "spec",
    [
        ClusterSpec(hosts=1, devices=8, dp=2, tp=1, pp=4, steps=3, seed=3),
        ClusterSpec(hosts=1, devices=8, dp=2, tp=2, pp=2, steps=3, seed=4),
    ],
)
def test_the_first_to_send_comes_first(tmp_path: Path, spec: ClusterSpec) -> None:
    simulate(tmp_path / "run", spec, ["stage-imbalance"], "msadvisor")
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        context = DiagnosisContext(run)
        stages = [rank // spec.stage_size for rank in range(spec.world)]
        assert [place.stage for place in context.ranks] == stages  # from the groups' structure
        assert inferred_stages(context.timeline).tolist() == stages


def test_without_a_pipeline_there_are_no_stages(tmp_path: Path) -> None:
    simulate(tmp_path / "run", ClusterSpec(hosts=1, devices=4, dp=2, tp=2, pp=1, steps=2), [], "msadvisor")
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        assert set(inferred_stages(DiagnosisContext(run).timeline).tolist()) == {-1}
