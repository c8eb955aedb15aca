"""The straggler study's numbers in a diagnosis, worked out by hand."""

from __future__ import annotations

from paceline.diagnosis.finding import WorkerSlowdown
from paceline.diagnosis.study import study_numbers
from paceline.metrics.timeline.operation_timeline import FORMAT
from support.fake_run import FakeRun

MS = 1_000_000


def traced(durations: dict[tuple[int, int], int], *, of: str = FORMAT) -> FakeRun:
    """One forward and a sum over replicas that takes 10 ms; forward durations in ms by (rank, step)."""
    last = {step: max(ms for (_, other), ms in durations.items() if other == step) for _, step in durations}
    kernels, calls = [], []
    for (rank, step), ms in durations.items():
        begin = 1000 * step * MS
        row = {"rank": rank, "step": step, "name": "forward-compute", "start": begin, "duration": ms * MS}
        kernels.append(row)
        call = {"rank": rank, "step": step, "name": "grads-all-reduce", "start": begin + ms * MS}
        calls.append({**call, "duration": (last[step] + 10 - ms) * MS})
    ranks = [{"rank": rank, "stage": 0, "format": of} for rank in sorted({rank for rank, _ in durations})]
    run = FakeRun(ranks=ranks, kernels=kernels, collectives=calls)
    run.formats = [of]
    return run


def test_one_of_two_replicas_is_slow() -> None:
    """Ideal forward: the mean of 100 and 300. T = 310, T ideal = 210; without the slow replica 210 of 200 + 10 stay."""
    found = study_numbers(traced({(0, 1): 100, (1, 1): 300}))  # type: ignore[arg-type]
    assert found is not None
    assert (found.step_ms, found.ideal_ms, found.slowdown) == (310, 210, 1.4762)
    assert (found.worst_workers_share, found.last_stage_share) == (1, 1)
    assert found.workers == (WorkerSlowdown(1, 0, 1, 1.4762), WorkerSlowdown(0, 0, 0, 1.0))


def test_where_nothing_is_lost_there_are_no_shares() -> None:
    found = study_numbers(traced({(0, 1): 100, (1, 1): 100}))  # type: ignore[arg-type]
    assert found is not None
    assert found.slowdown == 1 and found.worst_workers_share is None and found.last_stage_share is None


def test_other_formats_have_none() -> None:
    assert study_numbers(traced({(0, 1): 100}, of="kineto")) is None  # type: ignore[arg-type]


def test_without_a_whole_step_there_are_none() -> None:
    run = traced({(0, 1): 100})
    run.connection.execute("DELETE FROM kernels; DELETE FROM collectives")
    assert study_numbers(run) is None  # type: ignore[arg-type]
