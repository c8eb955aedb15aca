"""Two runs side by side: real changes are told from noise, and earlier findings are followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import paceline
from paceline.cli.main import application
from paceline.diagnosis.finding import Diagnosis, DirectedLink, RunFacts, StepTimes, Subject
from paceline.diagnosis.finding_diff import compare_findings, subjects_overlap
from paceline.diagnosis.render import in_words
from paceline.diagnosis.rule_finding import Examination, PredictedGain, RuleFinding
from paceline.metrics.compare import Comparison, Measured, compare, measure
from paceline.simulate import ClusterSpec, Truth, simulate

SPEC = ClusterSpec(hosts=1, devices=4, dp=2, tp=2, pp=1, steps=4, layers=4, micro_batches=2, detail_ranks=0)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def healthy(root: Path) -> Measured:
    return made(root / "healthy", SPEC)[0]


def made(root: Path, spec: ClusterSpec, *faults: str, layout: str = "ascend-text") -> tuple[Measured, Truth]:
    truth = simulate(root, spec, faults, layout)
    with paceline.open(root, store=root.with_name(f"{root.name}-store")) as run:
        return measure(run), truth


def verdicts(result: Comparison) -> set[str]:
    every = (result.step, *result.ranks, *result.operators, *result.links, *result.transports)
    return {change.verdict for change in every}


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_two_healthy_runs_differ_by_noise_only(root: Path, healthy: Measured, seed: int) -> None:
    other, _ = made(root / f"seed{seed}", ClusterSpec(**{**vars(SPEC), "seed": seed}))
    assert verdicts(compare(healthy, other)) == {"same"}


def test_a_mended_rank_is_the_only_rank_that_changed(root: Path, healthy: Measured) -> None:
    slow, truth = made(root / "slow", SPEC, "slow-rank:2:1.3")
    result = compare(slow, healthy)
    assert [change.name for change in result.ranks if change.verdict == "faster"] == ["2"]
    assert {change.verdict for change in result.ranks[1:]} == {"same"}
    assert result.step.before == pytest.approx(truth.step_ms.median, rel=0.01)
    assert result.step.after == pytest.approx(truth.step_ms_healthy.median, rel=0.01)
    assert result.step.verdict == "faster"
    exposed = next(change for change in result.phases if change.name == "exposed")
    assert exposed.verdict == "faster"  # the others no longer wait for it


def test_a_link_at_half_speed_is_found_by_name(root: Path, healthy: Measured) -> None:
    broken, _ = made(root / "link", SPEC, "slow-link:0-1:2")
    result = compare(healthy, broken)
    worst = result.links[0]
    assert worst.verdict == "slower" and worst.name.startswith("0 → 1")
    assert worst.after / worst.before == pytest.approx(0.5, abs=0.05)


def test_other_ranks_leave_the_step_and_its_phases(root: Path, healthy: Measured) -> None:
    wide, truth = made(root / "wide", ClusterSpec(**{**vars(SPEC), "devices": 8, "dp": 4}))
    result = compare(healthy, wide)
    assert not result.same_ranks and not result.ranks and not result.links and not result.operators
    assert result.step.after == pytest.approx(truth.step_ms.median, rel=0.01)
    assert {"compute", "exposed", "free"} <= {change.name for change in result.phases}


def test_formats_can_differ(root: Path, healthy: Measured) -> None:
    """The same cluster recorded by another profiler: the same step time."""
    kineto, _ = made(root / "kineto", ClusterSpec(**{**vars(SPEC), "detail_ranks": None}), layout="kineto")
    assert compare(healthy, kineto).step.verdict == "same"


def finding(name: str, gain: float, **subject: object) -> RuleFinding:
    return RuleFinding(name, Subject(**subject), PredictedGain(100.0, 100.0 - gain), 0.9)  # type: ignore[arg-type]


def diagnosis(*findings: RuleFinding) -> Diagnosis:
    times = StepTimes(None, None, None)
    facts = RunFacts(source="", formats=(), ranks=16, hosts=2, steps=(), step_ms=times, missing_ranks=(), warnings=())
    return in_words(Examination(facts, findings, 0.0), "en")


def test_findings_are_followed_by_id_and_subject() -> None:
    link = (DirectedLink(3, 4, "RDMA"),)
    before = diagnosis(
        finding("slow-rank", 9, ranks=(5,)), finding("slow-rank", 5, ranks=(7,)), finding("slow-link", 3, links=link)
    )
    after = diagnosis(finding("slow-rank", 4, ranks=(7, 8)), finding("jitter", 2, ranks=(5,)))
    assert [(change.status, change.finding.id) for change in compare_findings(before, after)] == [
        ("gone", "slow-rank"),
        ("still", "slow-rank"),
        ("gone", "slow-link"),
        ("new", "jitter"),
    ]
    assert compare_findings(before, after, unrecorded=frozenset({"links"}))[2].status == "unseen"
    assert subjects_overlap(Subject(), Subject(ranks=(1,)))  # no component named: the whole run
    other = Subject(links=(DirectedLink(3, 5, "RDMA"),), ranks=(3, 5))
    assert not subjects_overlap(Subject(links=link, ranks=(3, 4)), other)


def test_the_command_says_what_is_gone_and_fails_when_asked(root: Path, tmp_path: Path) -> None:
    slow, fast = root / "cli-slow", root / "cli-fast"
    simulate(slow, SPEC, ["slow-rank:2:1.3"])
    simulate(fast, SPEC)
    options = ["--store", str(tmp_path / "store"), "--workers", "1"]
    mended = CliRunner().invoke(
        application(), ["compare", str(slow), str(fast), "--fail-on-slower", "3", "--lang", "en", *options]
    )
    assert mended.exit_code == 0, mended.output
    assert "gone  Rank 2" in mended.output and "faster" in mended.output
    broken = CliRunner().invoke(
        application(), ["compare", str(fast), str(slow), "--fail-on-slower", "3", "--json", "-", *options]
    )
    assert broken.exit_code == 3
    document = json.loads(broken.stdout)
    assert document["schema"] == "paceline.comparison/1" and document["step"]["verdict"] == "slower"
    assert [(entry["status"], entry["id"]) for entry in document["findings"]] == [("new", "slow-rank")]
    tolerant = CliRunner().invoke(
        application(), ["compare", str(fast), str(slow), "--fail-on-slower", "90", "--lang", "zh", *options]
    )
    assert tolerant.exit_code == 0 and "新出现" in tolerant.output
