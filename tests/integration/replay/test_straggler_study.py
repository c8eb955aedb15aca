"""The published study of two real jobs (OSDI'25, ST and AR): our replay gives the authors' numbers, and so does diagnose."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import paceline
from paceline.diagnosis.diagnose import diagnose
from paceline.replay.straggler_study import StragglerStudy, straggler_study
from support.reader_helpers import FIXTURES, needs_fixtures

PUBLISHED = FIXTURES / "osdi25-straggler"
ONE_SLOW_WORKER = FIXTURES / "osdi25-straggler-AR"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StragglerStudy:
    with paceline.open(PUBLISHED, store=tmp_path_factory.mktemp("store")) as run:
        return straggler_study(run)


@needs_fixtures
def test_times_and_slowdown_are_the_published_ones(study: StragglerStudy) -> None:
    assert study.time == pytest.approx(2.1727, rel=0.001)
    assert study.ideal_time == pytest.approx(1.8433, rel=0.001)
    assert study.slowdown == pytest.approx(1.179, rel=0.001)


@needs_fixtures
def test_every_step_is_the_published_one(study: StragglerStudy) -> None:
    published = json.loads((PUBLISHED / "result-ST.json").read_text())
    assert study.step_times == pytest.approx(list(published["step_t_nodelay"].values()), rel=0.001)
    assert study.recorded_time == pytest.approx(np.mean(list(published["step_t_base"].values())), rel=0.001)


@needs_fixtures
def test_the_last_stage_explains_the_slowdown_and_single_workers_do_not(study: StragglerStudy) -> None:
    assert study.last_stage_share == pytest.approx(1.219, rel=0.01)
    assert study.worst_workers_share == pytest.approx(0.031, abs=0.001)


@needs_fixtures
def test_workers_are_scored_as_published(study: StragglerStudy) -> None:
    published = json.loads((PUBLISHED / "result-ST.json").read_text())
    by_stage, by_replica = published["blocking_decompose_by_stage"], published["blocking_decompose_by_dp_rank"]
    expected = [[min(by_stage[str(stage)], by_replica[str(replica)]) for replica in range(2)] for stage in range(4)]
    np.testing.assert_allclose(study.worker_scores, expected, rtol=0.01)


@needs_fixtures
def test_diagnose_prices_the_long_last_stage_as_the_study_does(tmp_path: Path) -> None:
    with paceline.open(PUBLISHED, store=tmp_path / "store") as run:
        found = diagnose(run)
    first = found.findings[0]
    assert (first.id, first.subject.stages) == ("stage-imbalance", (3,))
    assert first.gain.step_ms_fixed == pytest.approx(1843.3, rel=0.05)
    assert found.study is not None
    assert found.study.step_ms == pytest.approx(2172.7, rel=0.001)
    assert found.study.ideal_ms == pytest.approx(1843.3, rel=0.001)
    assert found.study.workers[0].stage == 3


@needs_fixtures
def test_diagnose_names_the_one_slow_worker_of_64_cards_and_prices_it_as_the_study_does(tmp_path: Path) -> None:
    published = {name: json.loads((ONE_SLOW_WORKER / f"{name}-AR.json").read_text()) for name in ("mw", "ms")}
    with paceline.open(ONE_SLOW_WORKER, store=tmp_path / "store") as run:
        found = diagnose(run)
    first = found.findings[0]
    assert (first.id, first.subject.ranks, first.severity) == ("slow-rank", (0,), "high")
    assert first.gain.step_ms_now == pytest.approx(46_661, rel=0.001)
    assert first.gain.step_ms_fixed == pytest.approx(1e3 * published["mw"]["trem"], rel=0.05)
    assert not [finding.title for finding in found.findings[1:] if finding.subject.ranks or finding.subject.links]
    study = found.study
    assert study is not None
    assert study.step_ms == pytest.approx(1e3 * published["mw"]["tori"], rel=0.001)
    assert study.ideal_ms == pytest.approx(1e3 * published["mw"]["tideal"], rel=0.001)
    assert study.worst_workers_share == pytest.approx(published["mw"]["Mw"], abs=0.005)
    assert study.last_stage_share == pytest.approx(published["ms"]["Ms"], abs=0.005)
    assert (study.workers[0].stage, study.workers[0].replica, study.workers[0].rank) == (0, 0, 0)
