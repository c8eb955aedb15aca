"""The path that decided the end of a simulated run."""

from __future__ import annotations

import numpy as np
import pytest

import paceline
from paceline.diagnosis.context import DiagnosisContext
from paceline.replay.critical_path import communication_operators, critical_path
from paceline.simulate import ClusterSpec, simulate

SPEC = ClusterSpec(hosts=1, devices=4, dp=2, tp=2, pp=1, steps=3, layers=4, micro_batches=2, detail_ranks=0)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> DiagnosisContext:
    root = tmp_path_factory.mktemp("path")
    simulate(root / "run", SPEC, ["slow-rank:2:1.3"])
    return DiagnosisContext(paceline.open(root / "run", store=root / "store"))


def test_segments_add_up_to_the_replayed_run(slow: DiagnosisContext) -> None:
    path = critical_path(slow.replay)
    base = slow.replay.base
    begins = slow.timeline.begin[list(slow.timeline.events.ranks).index(path.segments[0].rank)]
    assert path.total == pytest.approx(np.nanmax(base.step_ends) - begins, rel=1e-5)
    assert path.total == pytest.approx(sum(path.time_of(kind) for kind in ("work", "transfer", "wait")))


def test_the_work_on_the_path_is_the_slow_ranks(slow: DiagnosisContext) -> None:
    path = critical_path(slow.replay)
    own = sum(part.duration for part in path.segments if part.kind == "work" and part.rank == 2)
    assert own / path.time_of("work") > 0.95


def test_operators_are_named_and_ordered_by_serial_time(slow: DiagnosisContext) -> None:
    path = critical_path(slow.replay)
    times = communication_operators(slow.run, slow.replay, path)
    assert all(time.name.startswith("hcom_allReduce") for time in times)
    assert [time.serial for time in times] == sorted((time.serial for time in times), reverse=True)
    assert sum(time.serial + time.overlapped for time in times) == pytest.approx(path.time_of("transfer"))
    assert sum(time.last_count for time in times if time.last == 2) / sum(time.count for time in times) > 0.9
    # Gradients are the largest messages: (50.3 MB at 18 GB/s) = 2.8 ms each, the tensor-parallel ones 0.24 ms.
    assert times[0].serial / times[0].count > 5 * times[-1].serial / times[-1].count
