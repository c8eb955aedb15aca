"""Clusters from a simulator that is not ours (support/foreign_cluster.py): scenarios S0–S8 and D0–D4 of facts/the-field.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import paceline
from paceline.diagnosis.diagnose import diagnose
from paceline.diagnosis.finding import Finding
from support.foreign_cluster import Recording, Scenario, run, write_ascend_db, write_kineto

LAST_STAGE = dict.fromkeys(range(8, 16), 1.15)
HYBRID, FLAT = Scenario(), Scenario(tensor=1, data=16, pipeline=1, micro_batches=2)
EVEN = replace(HYBRID, factor=dict.fromkeys(range(16), 1.075))
"""The work of LAST_STAGE, split evenly."""
SCENARIOS: dict[str, tuple[Scenario, Scenario, str, tuple[int, ...]]] = {
    # name: (the cluster, the same mended, id of the first finding, ranks it names)
    "S1": (replace(HYBRID, factor={11: 1.25}), HYBRID, "slow-rank", (11,)),
    "S2": (replace(HYBRID, factor={2: 1.25}), HYBRID, "slow-rank", (2,)),
    "S3": (replace(HYBRID, factor=LAST_STAGE), EVEN, "stage-imbalance", tuple(range(8, 16))),
    "S4": (replace(HYBRID, link={"dp_t1p1": 4.0}), HYBRID, "slow-link", ()),
    "S5": (replace(HYBRID, factor={11: 1.25}, skew={1: 4300.0}), HYBRID, "slow-rank", (11,)),
    "S6": (replace(HYBRID, factor={11: 1.05}), HYBRID, "slow-rank", (11,)),
    "S7": (replace(HYBRID, factor={**LAST_STAGE, 2: 1.6}), replace(HYBRID, factor=LAST_STAGE), "slow-rank", (2,)),
    "S8": (replace(HYBRID, factor={(11, 3): 1.6}), HYBRID, "one-off-stall", (11,)),
    "D1": (replace(FLAT, factor={11: 1.25}), FLAT, "slow-rank", (11,)),
    "D2": (replace(FLAT, factor={11: 1.25}, skew={1: 4300.0}), FLAT, "slow-rank", (11,)),
    "D3": (replace(FLAT, factor={11: 1.05}), FLAT, "slow-rank", (11,)),
    "D4": (replace(FLAT, factor={3: 1.25}, skew={1: 4300.0}), FLAT, "slow-rank", (3,)),
}
HEALTHY = {
    "S0": HYBRID,
    "S0-skew": replace(HYBRID, skew={1: 4300.0}),
    "D0": FLAT,
    "S0-buffered": replace(HYBRID, buffered=6.0),
    "S0-buffered-skew": replace(HYBRID, skew={1: 4300.0}, buffered=90.0),
}
for name in ("S1", "S3", "S5", "S7"):
    broken, mended, expected, ranks = SCENARIOS[name]
    takes = {"S5": 90.0}.get(name, 6.0)  # a send that lasts as long as its message, and one that only posts it
    SCENARIOS[f"{name}-buffered"] = replace(broken, buffered=takes), replace(mended, buffered=takes), expected, ranks
Write = Callable[[Recording, Path], Path]
FORMATS = pytest.mark.parametrize("write", [write_kineto, write_ascend_db], ids=["kineto", "ascend-db"])


def findings_of(recording: Recording, write: Write, tmp_path: Path) -> tuple[Finding, ...]:
    with paceline.open(write(recording, tmp_path / "run"), store=tmp_path / "store") as opened:
        return diagnose(opened).findings


@FORMATS
@pytest.mark.parametrize("healthy", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_cluster_is_left_alone(healthy: Scenario, write: Write, tmp_path: Path) -> None:
    found = findings_of(run(healthy), write, tmp_path)
    assert [finding.id for finding in found if finding.severity in ("high", "medium")] == []


@FORMATS
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_true_cause_comes_first_with_its_gain(name: str, write: Write, tmp_path: Path) -> None:
    broken, mended, expected, ranks = SCENARIOS[name]
    recording = run(broken)
    first = findings_of(recording, write, tmp_path)[0]
    assert first.id == expected
    assert not ranks or first.subject.ranks == ranks
    if expected == "one-off-stall":
        assert first.subject.steps == (3,)
    else:
        assert first.gain.step_ms_fixed == pytest.approx(run(mended).step_time, rel=0.03)
