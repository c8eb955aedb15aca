"""Two runs side by side: real changes are told from noise, and earlier findings are followed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import paceline
from paceline.advice.fate import fates, overlap
from paceline.advice.finding import Diagnosis, Finding, Gain, Link, Subject
from paceline.analysis.compare import Comparison, Measured, Sample, changes, compare, measure
from paceline.cli.main import application
from paceline.errors import UsageError
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


def test_a_change_is_real_beyond_three_sigma_of_both_runs_and_one_per_cent() -> None:
    def verdict(before: Sample, after: Sample) -> str:
        return changes({"x": before}, {"x": after}, "ms", alike=False)[0].verdict

    assert verdict(Sample(100, 1.0, 9), Sample(103.5, 0.5, 9)) == "slower"
    assert verdict(Sample(100, 1.0, 9), Sample(102.5, 0.5, 9)) == "same"
    assert verdict(Sample(100, 0.5, 9), Sample(102.5, 1.0, 9)) == "same"  # the later run is the noisy one
    assert verdict(Sample(100, 0.1, 9), Sample(99.1, 0.1, 9)) == "same"  # beyond noise, yet under 1 %
    assert verdict(Sample(100, 0.1, 9), Sample(98.9, 0.1, 9)) == "faster"
    assert verdict(Sample(100, 0.0, 1), Sample(102.5, 0.0, 1)) == "same"  # one step each: noise unknown, 3 % taken


def test_the_noise_of_alike_rows_is_at_least_their_usual_one() -> None:
    before = {name: Sample(100, sigma, 4) for name, sigma in {"a": 1.0, "b": 1.0, "c": 0.0}.items()}
    after = {**before, "c": Sample(102, 0.0, 4)}
    assert {change.verdict for change in changes(before, after, "ms")} == {"same"}
    assert changes(before, after, "ms", alike=False)[0].name == "c"


def test_more_bandwidth_is_faster() -> None:
    (change,) = changes({"l": Sample(10, 0.1, 5)}, {"l": Sample(20, 0.1, 5)}, "GB/s", more_is_faster=True)
    assert change.verdict == "faster" and change.percent == pytest.approx(100)


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
    assert {"computing", "exposed", "free"} <= {change.name for change in result.phases}


def test_formats_can_differ(root: Path, healthy: Measured) -> None:
    """The same cluster recorded by another profiler: the same step time."""
    kineto, _ = made(root / "kineto", ClusterSpec(**{**vars(SPEC), "detail_ranks": None}), layout="kineto")
    assert compare(healthy, kineto).step.verdict == "same"


def test_a_run_without_steps_is_refused(healthy: Measured) -> None:
    with pytest.raises(UsageError, match="the run after recorded no step times"):
        compare(healthy, Measured(frozenset({0}), {}, {}))


def finding(name: str, gain: float, **subject: object) -> Finding:
    return Finding(name, Subject(**subject), Gain(100.0, 100.0 - gain), 0.9)  # type: ignore[arg-type]


def test_findings_are_followed_by_id_and_subject() -> None:
    link = (Link(3, 4, "RDMA"),)
    before = Diagnosis({}, (
        finding("slow-rank", 9, ranks=(5,)), finding("slow-rank", 5, ranks=(7,)), finding("slow-link", 3, links=link),
    ))  # fmt: skip
    after = Diagnosis({}, (finding("slow-rank", 4, ranks=(7, 8)), finding("jitter", 2, ranks=(5,))))
    assert [(fate.status, fate.finding.id) for fate in fates(before, after)] == [
        ("gone", "slow-rank"), ("still", "slow-rank"), ("gone", "slow-link"), ("new", "jitter"),
    ]  # fmt: skip
    assert fates(before, after, blind=frozenset({"links"}))[2].status == "unseen"
    assert overlap(Subject(), Subject(ranks=(1,)))  # nobody named: everybody
    assert not overlap(Subject(links=link, ranks=(3, 4)), Subject(links=(Link(3, 5, "RDMA"),), ranks=(3, 5)))


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
