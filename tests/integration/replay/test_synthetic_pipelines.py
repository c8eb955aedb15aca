"""Traces of other shapes than the published one: our replay gives what walking the program gives, and the right cause."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import paceline
from paceline.diagnosis.diagnose import diagnose
from paceline.replay.straggler_study import straggler_study
from support.synthetic_traces import COMPUTING, Costs, Pipeline

SHAPES = [
    Pipeline(4, 3, 8),
    Pipeline(4, 2, 8, chunks=2),
    Pipeline(2, 4, 4, chunks=3),
    Pipeline(1, 4, 3),
    Pipeline(3, 1, 6),
]


@pytest.fixture(autouse=True)
def deep_recursion() -> None:
    sys.setrecursionlimit(20_000)


def uneven(pipeline: Pipeline, seed: int) -> Costs:
    """All computing different everywhere, communication from step to step: its members end together."""
    rng = np.random.default_rng(seed)
    costs = pipeline.costs(lambda *_: 0.01 * rng.lognormal(0, 0.3))
    speed = rng.uniform(0.7, 1.3, pipeline.steps)
    return {
        (key, replica, step): cost * (rng.uniform(0.7, 1.3) if key[0] in COMPUTING else speed[step])
        for (key, replica, step), cost in costs.items()
    }


@pytest.mark.parametrize("pipeline", SHAPES, ids=lambda p: f"pp{p.stages}-dp{p.replicas}-vpp{p.chunks}")
def test_the_study_replays_what_walking_the_program_gives(pipeline: Pipeline, tmp_path: Path) -> None:
    costs = uneven(pipeline, seed=3)
    ideal = pipeline.ideal(costs)
    with paceline.open(pipeline.write(tmp_path / "trace", costs), store=tmp_path / "store") as run:
        study = straggler_study(run)
    assert study.time == pytest.approx(pipeline.time(costs), rel=2e-4)
    assert study.recorded_time == pytest.approx(study.time, rel=2e-4)
    assert study.ideal_time == pytest.approx(pipeline.time(ideal), rel=2e-3)  # medians of what float32 holds
    last = {place: ideal[place] if place[0][2] == pipeline.stages - 1 else cost for place, cost in costs.items()}
    share = (pipeline.time(costs) - pipeline.time(last)) / (pipeline.time(costs) - pipeline.time(ideal))
    assert study.last_stage_share == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("chunks", [1, 2])
def test_one_slow_worker_is_named(chunks: int, tmp_path: Path) -> None:
    """The study's job AR: one worker needs twice as long; 64 workers, S near 2, all of it explained by 3 % of them."""
    pipeline = Pipeline(8, 8, 8, chunks=chunks, steps=3)
    rng = np.random.default_rng(5)
    slow = (3, 6)
    costs = pipeline.costs(
        lambda stage, replica, *_: 0.01 * (2.2 if (stage, replica) == slow else 1) * rng.normal(1, 0.01)
    )
    with paceline.open(pipeline.write(tmp_path / "trace", costs), store=tmp_path / "store") as run:
        study, findings = straggler_study(run), diagnose(run).findings
    assert study.slowdown > 1.35
    assert study.worst_workers_share == pytest.approx(1, abs=0.05)
    assert abs(study.last_stage_share) < 0.05
    assert (findings[0].id, findings[0].subject.ranks) == ("slow-rank", (3 * 8 + 6,))
    healthy = pipeline.time(pipeline.costs(lambda *_: 0.01 * rng.normal(1, 0.01)))
    assert findings[0].gain.step_ms_fixed / 1e3 == pytest.approx(healthy, rel=0.03)


@pytest.mark.parametrize(("chunks", "tail"), [(1, 1.0), (1, 1.15), (2, 1.0)])
def test_sequences_of_different_length_are_load_imbalance(chunks: int, tail: float, tmp_path: Path) -> None:
    """The study's job SE: each micro-batch of each replica has its own length, and the last stage has the loss as well."""
    pipeline = Pipeline(4, 16, 8, chunks=chunks, steps=4)
    rng = np.random.default_rng(8)
    lengths = rng.lognormal(0, 0.5, (pipeline.replicas, pipeline.steps, pipeline.micro_batches))
    costs = pipeline.costs(
        lambda stage, replica, step, batch: (
            0.01 * (tail if stage == 3 else 1) * lengths[replica, step, batch] * rng.normal(1, 0.005)
        )
    )
    with paceline.open(pipeline.write(tmp_path / "trace", costs), store=tmp_path / "store") as run:
        study, findings = straggler_study(run), diagnose(run).findings
    assert study.slowdown > 1.3
    assert study.worst_workers_share < 0.2
    assert findings[0].id == "load-imbalance"


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_long_last_stage_is_stage_imbalance(chunks: int, tmp_path: Path) -> None:
    pipeline = Pipeline(4, 4, 8, chunks=chunks, steps=3)
    rng = np.random.default_rng(2)
    costs = pipeline.costs(lambda stage, *_: 0.01 * (1.35 if stage == 3 else 1) * rng.normal(1, 0.01))
    with paceline.open(pipeline.write(tmp_path / "trace", costs), store=tmp_path / "store") as run:
        study, findings = straggler_study(run), diagnose(run).findings
    assert study.last_stage_share > 0.9
    assert (findings[0].id, findings[0].subject.stages) == ("stage-imbalance", (3,))
