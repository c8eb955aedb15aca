"""What hides behind something else: a second fault, a stage behind a host, pauses of one rank, one cable both ways."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import paceline
from paceline.diagnosis.diagnose import diagnose
from paceline.diagnosis.finding import Finding
from paceline.simulate import ClusterSpec, simulate

PIPELINE = ClusterSpec(hosts=2, devices=4, dp=2, tp=2, pp=2, steps=5, micro_batches=8, seed=11)
DATA_PARALLEL = ClusterSpec(hosts=1, devices=8, dp=8, tp=1, pp=1, steps=6, micro_batches=4, seed=12)


def _found(tmp_path: Path, spec: ClusterSpec, faults: tuple[str, ...], layout: str) -> tuple[Finding, ...]:
    simulate(tmp_path / "run", spec, faults, layout)
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        diagnosis = diagnose(run)
    assert abs(diagnosis.replay.residual_percent) < 2
    return diagnosis.findings


@pytest.mark.parametrize(
    ("layout", "fault", "id"),
    [
        ("ascend-text", "slow-host:1", "slow-host"),
        ("kineto", "slow-host:1", "slow-host"),  # shapes of kernels are those of their operators
        ("kineto", "stage-imbalance:1:1.25", "stage-imbalance"),
    ],
)
def test_a_slow_host_is_told_from_a_heavy_stage_by_shapes(tmp_path: Path, layout: str, fault: str, id: str) -> None:
    first = _found(tmp_path, PIPELINE, (fault,), layout)[0]
    assert (first.id, first.subject.ranks) == (id, (4, 5, 6, 7))


def test_a_torch_trace_without_step_marks_gives_the_same_gain(tmp_path: Path) -> None:
    """As one step it told a quarter of it: the wait of each step for the gradients' sums was taken for work."""
    marked = _found(tmp_path / "marked", PIPELINE, ("slow-rank:5:1.3",), "kineto")[0]
    simulate(tmp_path / "run", PIPELINE, ("slow-rank:5:1.3",), "kineto")
    for path in (tmp_path / "run").glob("*.json.gz"):
        text = gzip.decompress(path.read_bytes()).replace(b"ProfilerStep#", b"something else")
        path.write_bytes(gzip.compress(text))
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        found = diagnose(run)
    assert found.run.steps == (0, 1, 2, 3, 4)
    assert (found.findings[0].id, found.findings[0].subject.ranks) == ("slow-rank", (5,))
    assert found.findings[0].gain.percent == pytest.approx(marked.gain.percent, abs=0.5)


def test_a_rank_whose_recording_begins_later_is_compared_where_all_recorded(tmp_path: Path) -> None:
    simulate(tmp_path / "run", DATA_PARALLEL, ("slow-rank:2:1.3",), "ascend-text")
    steps = next((tmp_path / "run").glob("*10005*/ASCEND_PROFILER_OUTPUT/step_trace_time.csv"))
    head, *lines = steps.read_text().splitlines(keepends=True)
    steps.write_text(head + "".join(lines[2:]))
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        found = diagnose(run)
    assert found.run.steps == (3, 4, 5, 6)
    assert (found.findings[0].id, found.findings[0].subject.ranks) == ("slow-rank", (2,))


def test_a_rank_that_pauses_in_some_steps_is_named_with_them(tmp_path: Path) -> None:
    faults = ("one-off-stall:3:2:80", "one-off-stall:3:4:80", "one-off-stall:3:5:80")
    first = _found(tmp_path, DATA_PARALLEL, faults, "ascend-text")[0]
    assert (first.id, first.subject.ranks, first.subject.steps) == ("one-off-stall", (3,), (2, 4, 5))


def test_a_fault_behind_a_greater_one_says_what_it_gains_then(tmp_path: Path) -> None:
    found = _found(tmp_path, DATA_PARALLEL, ("slow-rank:2:1.6", "load-imbalance:1.2"), "kineto")
    assert (found[0].id, found[0].subject.ranks) == ("slow-rank", (2,))
    hidden = next(finding for finding in found if finding.id == "load-imbalance")
    assert hidden.evidence[-1].key == "step_after_first_fix"
    assert hidden.severity in ("medium", "high")


def test_the_library_diagnoses_a_path_or_an_open_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    simulate(tmp_path / "run", DATA_PARALLEL, ("slow-rank:2:1.6",), "ascend-text")
    by_path = paceline.diagnose(tmp_path / "run", steps=(2, 3, 4))
    with paceline.open(tmp_path / "run") as run:
        assert paceline.diagnose(run, steps=(2, 3, 4)) == by_path
    assert (by_path.run.steps, by_path.findings[0].subject.ranks) == ((2, 3, 4), (2,))
