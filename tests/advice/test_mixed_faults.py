"""What hides behind something else: a second fault, a stage behind a host, pauses of one rank, one cable both ways."""

from __future__ import annotations

from pathlib import Path

import pytest

import paceline
from paceline.advice.engine import diagnose
from paceline.advice.finding import Finding
from paceline.simulate import ClusterSpec, simulate

PIPELINE = ClusterSpec(hosts=2, devices=4, dp=2, tp=2, pp=2, steps=5, micro_batches=8, seed=11)
DATA_PARALLEL = ClusterSpec(hosts=1, devices=8, dp=8, tp=1, pp=1, steps=6, micro_batches=4, seed=12)


def _found(tmp_path: Path, spec: ClusterSpec, faults: tuple[str, ...], layout: str) -> tuple[Finding, ...]:
    simulate(tmp_path / "run", spec, faults, layout)
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        diagnosis = diagnose(run)
    assert abs(diagnosis.residual) < 0.02
    return diagnosis.findings


@pytest.mark.parametrize(
    ("fault", "id", "ranks"),
    [("slow-host:1", "slow-host", (4, 5, 6, 7)), ("stage-imbalance:1:1.25", "stage-imbalance", (4, 5, 6, 7))],
)
def test_a_slow_host_is_told_from_a_heavy_stage_without_shapes(
    tmp_path: Path, fault: str, id: str, ranks: tuple[int, ...]
) -> None:
    first = _found(tmp_path, PIPELINE, (fault,), "kineto")[0]
    assert (first.id, first.subject.ranks) == (id, ranks)


def test_a_rank_that_pauses_in_some_steps_is_named_with_them(tmp_path: Path) -> None:
    faults = ("one-off-stall:3:2:80", "one-off-stall:3:4:80", "one-off-stall:3:5:80")
    first = _found(tmp_path, DATA_PARALLEL, faults, "ascend-text")[0]
    assert (first.id, first.subject.ranks, first.subject.steps) == ("one-off-stall", (3,), (2, 4, 5))


def test_a_fault_behind_a_greater_one_says_what_it_gains_then(tmp_path: Path) -> None:
    found = _found(tmp_path, DATA_PARALLEL, ("slow-rank:2:1.6", "load-imbalance:1.2"), "kineto")
    assert (found[0].id, found[0].subject.ranks) == ("slow-rank", (2,))
    hidden = next(finding for finding in found if finding.id == "load-imbalance")
    assert hidden.evidence[-1].metric == "step once the first finding is mended too"
    assert hidden.severity in ("medium", "high")
