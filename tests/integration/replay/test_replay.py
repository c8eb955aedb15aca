"""The replay reproduces what was measured, and predicts what mending a fault gives."""

from __future__ import annotations

from pathlib import Path

import pytest

import paceline
from paceline.core.errors import UsageError
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.what_if import apply_fix
from paceline.simulate import ClusterSpec, Truth, simulate
from support.reader_helpers import FIXTURES, needs_fixtures

SPEC = ClusterSpec(steps=3, detail_ranks=0)


def simulated(root: Path, *faults: str, spec: ClusterSpec = SPEC) -> tuple[DiagnosisContext, Truth]:
    truth = simulate(root / "run", spec, faults)
    return DiagnosisContext(paceline.open(root / "run", store=root / "store")), truth


@pytest.mark.parametrize(
    "shape",
    [
        {"hosts": 2, "devices": 8, "dp": 4, "tp": 2, "pp": 2},
        {"hosts": 1, "devices": 8, "dp": 8, "tp": 1, "pp": 1},
        {"hosts": 1, "devices": 8, "dp": 2, "tp": 1, "pp": 4},
        {"hosts": 2, "devices": 4, "dp": 1, "tp": 8, "pp": 1},
    ],
    ids=["dp4-tp2-pp2", "dp8", "dp2-pp4", "tp8"],
)
def test_unchanged_replay_is_within_two_per_cent_of_the_measured_step(tmp_path: Path, shape: dict[str, int]) -> None:
    context, truth = simulated(tmp_path, "jitter", spec=ClusterSpec(**shape, steps=3, detail_ranks=0))
    assert abs(context.replay.residual) < 0.02
    assert context.step_ms == pytest.approx(truth.step_ms.median, rel=0.02)


def test_own_time_leaves_waiting_out(tmp_path: Path) -> None:
    """Rank 5 needs 30 % more computing; its partners wait for it, which is not their own time."""
    context, _ = simulated(tmp_path, "slow-rank:5:1.3")
    own = context.self_time.mean(axis=1)
    others = [own[i] for i, place in enumerate(context.ranks) if place.rank != 5]
    assert max(others) / min(others) < 1.02
    assert own[5] / min(others) == pytest.approx(1.29, abs=0.03)


@pytest.mark.parametrize(
    ("fault", "fix"),
    [("slow-rank:5:1.3", "rank:5"), ("slow-rank:0:1.15", "rank:0"), ("slow-link", "link"), ("input-bound", "input")],
)
def test_mending_the_fault_gives_the_healthy_step_time(tmp_path: Path, fault: str, fix: str) -> None:
    context, truth = simulated(tmp_path, fault)
    if fix == "link":
        link = truth.faults[0].subject.links[0]
        fix = f"link:{link['src']}-{link['dst']}" if isinstance(link, dict) else f"link:{link.src}-{link.dst}"
    gain = context.gain(apply_fix(context, context.replay.costs, fix))
    assert gain.step_ms_fixed == pytest.approx(truth.step_ms_healthy.median, rel=0.03)


def test_fixes_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    context, _ = simulated(tmp_path)
    for text, said in (("rank:99", "no such rank"), ("magic", "unknown fix"), ("link:0-15", "no collective")):
        with pytest.raises(UsageError, match=said):
            apply_fix(context, context.replay.costs, text)


@needs_fixtures
def test_the_published_job_is_replayed_within_one_per_cent(tmp_path: Path) -> None:
    with paceline.open(FIXTURES / "osdi25-straggler", store=tmp_path / "store") as run:
        context = DiagnosisContext(run)
        assert abs(context.replay.residual) < 0.01
        assert context.step_ms / 1e3 == pytest.approx(2.2144, rel=0.01)  # the published mean of step_t_base
