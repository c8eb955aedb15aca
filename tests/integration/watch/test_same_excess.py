"""watch, breakdown and diagnose give the same self time, reference and excess for the same recorder logs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from paceline.metrics.breakdown import breakdown
from paceline.watch.source import open_log_source
from paceline.watch.straggler import JobView, view_job
from paceline.watch.tail import LogFollower
from support.recorder.runs import diagnosed
from support.watch.logs import write_recorder_logs


def watched(logs: Path) -> JobView:
    follower = LogFollower(open_log_source(logs))
    follower.poll()
    view = view_job(list(follower.jobs.values())[-1])
    assert view is not None
    return view


def self_times(slow: dict[int, float], *, ranks: int = 8, steps: int = 41, stages: int = 1) -> list[list[float]]:
    """ms; later stages have more work, `slow` ranks take times as long, the first step is a warm-up."""
    chance = random.Random(1)
    stage_of = [rank * stages // ranks for rank in range(ranks)]
    return [
        [
            80 * (1 + stage_of[rank]) * chance.gauss(1, 0.01) * slow.get(rank, 1) * (1 if step else 10)
            for step in range(steps)
        ]
        for rank in range(ranks)
    ]


@pytest.mark.parametrize(
    ("slow", "stages"),
    [({2: 1.3}, 1), ({2: 1.3, 5: 1.5}, 1), (dict.fromkeys(range(4), 1.4), 1), ({6: 1.3}, 2)],
)
def test_watch_equals_breakdown(tmp_path: Path, slow: dict[int, float], stages: int) -> None:
    write_recorder_logs(tmp_path / "light", self_times(slow, stages=stages), stages=stages)
    live = watched(tmp_path / "light")
    assert {rank.rank for rank in live.alerts} == set(slow)
    stored = breakdown(tmp_path / "light", store=tmp_path / "store").slow
    for rank, other in zip(live.alerts, stored, strict=True):
        assert (rank.rank, rank.excess, rank.self_ms, rank.reference_ms) == pytest.approx(
            (other.rank, other.excess, other.self_time, other.reference), rel=1e-12
        )


def test_watch_equals_the_evidence_of_diagnose(tmp_path: Path) -> None:
    write_recorder_logs(tmp_path / "light", self_times({2: 1.3}))
    [rank] = watched(tmp_path / "light").alerts
    [finding] = [
        each for each in diagnosed(tmp_path / "light", tmp_path / "store")["findings"] if each["id"] == "slow-rank"
    ]
    assert finding["subject"]["ranks"] == [2]
    assert (finding["evidence"][0]["value"], finding["evidence"][0]["peers"]) == pytest.approx(
        (rank.self_ms, rank.reference_ms), abs=1e-3
    )
    assert f"{rank.excess:.0%}".replace("%", " %") in finding["title"]


def test_warm_up_steps_are_left_out(tmp_path: Path) -> None:
    write_recorder_logs(tmp_path / "light", self_times({}, ranks=2, steps=12))
    assert watched(tmp_path / "light").window == 11
