"""The true cause comes first, with the right subject and a gain close to the truth; healthy runs yield nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import paceline
from paceline.core.i18n import LANGUAGES, Language
from paceline.diagnosis.diagnose import diagnose
from paceline.diagnosis.finding import Diagnosis
from paceline.diagnosis.hardware import default_hardware
from paceline.simulate import ClusterSpec, Truth, simulate
from support.reader_helpers import FIXTURES, needs_fixtures


def examined(
    root: Path,
    *faults: str,
    layout: str = "ascend-text",
    spec: ClusterSpec | None = None,
    language: Language = "en",
) -> tuple[Diagnosis, Truth]:
    truth = simulate(root / "run", spec or ClusterSpec(steps=5), faults, layout)
    cards = replace(default_hardware(), memory_gib=(64.0,), memory_is_given=True)  # as --hardware names them
    with paceline.open(root / "run", store=root / "store") as run:
        return diagnose(run, hardware=cards, language=language), truth


# Faults with a price: the predicted step time is compared with the simulator's counterfactual.
PRICED = (
    "slow-rank",
    "slow-host",
    "slow-link",
    "small-packets",
    "bandwidth-contention",
    "comm-exposed",
    "stage-imbalance",
    "pipeline-bubble",
    "input-bound",
    "host-bound",
    "slow-operator",
    "cpu-operators",
    "frequency-drop",
    "jitter",
    "memory-pressure",
)


@pytest.mark.parametrize("fault", PRICED)
def test_the_fault_is_the_first_finding_and_its_gain_is_right(tmp_path: Path, fault: str) -> None:
    diagnosis, truth = examined(tmp_path, fault, spec=ClusterSpec(steps=5, seed=23))
    assert diagnosis.findings, "nothing found"
    first = diagnosis.findings[0]
    assert first.id == fault
    assert first.gain.step_ms_fixed == pytest.approx(truth.step_ms_healthy.median, rel=0.05)
    subject = truth.faults[0].subject
    if subject.ranks and len(subject.ranks) < 16:
        assert set(first.subject.ranks) == set(subject.ranks)
    if subject.operators:
        assert set(subject.operators) <= set(first.subject.operators)


@pytest.mark.parametrize("fault", ["load-imbalance", "one-off-stall", "memory-imbalance", "data-incomplete"])
def test_faults_without_a_steady_price_are_found_too(tmp_path: Path, fault: str) -> None:
    diagnosis, _ = examined(tmp_path, fault, spec=ClusterSpec(steps=6, seed=5))
    assert diagnosis.findings[0].id == fault


@pytest.mark.parametrize("layout", ["ascend-text", "ascend-db", "kineto", "mindinsight"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_healthy_cluster_yields_no_finding(tmp_path: Path, layout: str, seed: int) -> None:
    diagnosis, _ = examined(tmp_path, layout=layout, spec=ClusterSpec(steps=4, seed=seed))
    assert [finding.id for finding in diagnosis.findings if finding.severity in ("high", "medium")] == []


def test_a_slow_rank_whose_innocent_neighbours_arrive_last_is_named(tmp_path: Path) -> None:
    diagnosis, _ = examined(tmp_path, "slow-rank:11:1.25")
    assert (diagnosis.findings[0].id, diagnosis.findings[0].subject.ranks) == ("slow-rank", (11,))


def test_the_slower_of_a_group_of_two_is_named(tmp_path: Path) -> None:
    spec = ClusterSpec(hosts=1, devices=2, dp=2, tp=1, pp=1, steps=5)
    diagnosis, _ = examined(tmp_path, "slow-rank:1:1.2", spec=spec)
    assert (diagnosis.findings[0].id, diagnosis.findings[0].subject.ranks) == ("slow-rank", (1,))


def test_two_culprits_in_one_group_are_both_named(tmp_path: Path) -> None:
    diagnosis, _ = examined(tmp_path, "slow-rank:2:1.2", "slow-rank:6:1.2")
    named = {rank for finding in diagnosis.findings if finding.id == "slow-rank" for rank in finding.subject.ranks}
    assert named == {2, 6}


def test_half_a_group_can_be_slow(tmp_path: Path) -> None:
    spec = ClusterSpec(hosts=1, devices=4, dp=4, tp=1, pp=1, steps=5)
    diagnosis, _ = examined(tmp_path, "slow-rank:1:1.2", "slow-rank:3:1.2", spec=spec)
    named = {rank for finding in diagnosis.findings if finding.id == "slow-rank" for rank in finding.subject.ranks}
    assert named == {1, 3}


def test_a_small_fault_is_found(tmp_path: Path) -> None:
    diagnosis, _ = examined(tmp_path, "slow-rank:11:1.05")
    assert (diagnosis.findings[0].id, diagnosis.findings[0].subject.ranks) == ("slow-rank", (11,))


def test_the_public_json_has_the_documented_shape(tmp_path: Path) -> None:
    for language in LANGUAGES:
        diagnosis, _ = examined(tmp_path / language, "slow-link:3-5:2", language=language)
        public = json.loads(msgspec.json.encode(diagnosis))
        assert public["schema"] == "paceline.diagnosis/1"
        assert public["run"]["ranks"] == 16 and public["run"]["step_ms"]["median"] > 0
        finding = public["findings"][0]
        assert finding["id"] == "slow-link" and finding["see"] == "kb/slow-link"
        assert finding["subject"]["links"][0]["src"] == 3 and finding["subject"]["links"][0]["dst"] == 5
        assert finding["gain"]["step_ms_fixed"] < finding["gain"]["step_ms_now"]
        assert finding["advice"] and finding["evidence"] and "{" not in finding["title"]


@needs_fixtures
def test_the_published_job_has_a_long_last_stage(tmp_path: Path) -> None:
    with paceline.open(FIXTURES / "osdi25-straggler", store=tmp_path / "store") as run:
        first = diagnose(run).findings[0]
    assert (first.id, first.subject.stages) == ("stage-imbalance", (3,))


@needs_fixtures
def test_the_slowed_gloo_rank_is_named(tmp_path: Path) -> None:
    with paceline.open(FIXTURES / "mindspore-2.10-cpu" / "kineto", store=tmp_path / "store") as run:
        findings = diagnose(run).findings
    assert findings and findings[0].subject.ranks == (1,)


@needs_fixtures
def test_a_link_that_carries_only_small_messages_is_not_called_slow(tmp_path: Path) -> None:
    root = FIXTURES / "mindinsight-tests" / "tests" / "utils" / "resource" / "cluster_propose"
    with paceline.open(root, store=tmp_path / "store") as run:
        found = {finding.id: finding for finding in diagnose(run).findings}
    assert "slow-link" not in found
    assert found["stage-imbalance"].subject.stages == (1,)
