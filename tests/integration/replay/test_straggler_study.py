"""The published study of a real job (OSDI'25, job ST): our replay gives the authors' numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

import paceline
from paceline.replay.straggler_study import StragglerStudy, straggler_study
from support.reader_helpers import FIXTURES, needs_fixtures

PUBLISHED = FIXTURES / "osdi25-straggler"


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
