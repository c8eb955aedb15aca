"""The path that decided the end of a run: worked out by hand on small graphs, then on simulated runs."""

from __future__ import annotations

import numpy as np
import pytest

import paceline
from paceline.advice.case import Case
from paceline.analysis.critical_path import communication_operators, critical_path
from paceline.analysis.events import Events
from paceline.analysis.replay import Replay
from paceline.analysis.timeline import Timeline
from paceline.simulate import ClusterSpec, simulate

SPEC = ClusterSpec(hosts=1, devices=4, dp=2, tp=2, pp=1, steps=3, layers=4, micro_batches=2, detail_ranks=0)


def graph(rows: list[dict[str, object]], ranks: int) -> Replay:
    """A graph from rows in order of rank and start: rank, op, instance, start, end, anchor, work, after, lag, overlap."""

    def column(name: str, default: int = 0) -> np.ndarray:
        return np.array([row.get(name, default) for row in rows], dtype=np.int64)

    events = Events(
        ranks=np.arange(ranks), rank=column("rank"), step=np.ones(len(rows), dtype=np.int64),
        tie=np.array(["g"] * len(rows), dtype=object), op=np.array([row["op"] for row in rows], dtype=object),
        start=column("start"), end=column("end"), bytes=column("bytes", -1), instance=column("instance"),
    )  # fmt: skip
    return Replay(Timeline(
        events=events, steps=np.array([1]), step=np.zeros(len(rows), dtype=np.int64), is_end=events.op == "step_end",
        beside=np.zeros(len(rows), dtype=np.bool_), overlap=column("overlap"), anchor=column("anchor", -1),
        work=column("work"), after=column("after", -1), lag=column("lag"), begin=np.zeros(ranks, dtype=np.int64),
        known=np.ones((ranks, 1), dtype=np.bool_), place=np.zeros(len(rows), dtype=np.int64), own=np.zeros(len(rows)),
    ))  # fmt: skip


def told(replay: Replay) -> list[tuple[int, str, str, float]]:
    return [(part.rank, part.kind, part.op, part.duration) for part in critical_path(replay).segments]


def test_the_path_goes_through_the_last_to_arrive() -> None:
    """Rank 1 computes 30, rank 0 only 10; 5 of transfer; then rank 0 needs 7 and rank 1 only 1."""
    replay = graph([
        {"rank": 0, "op": "all_reduce", "instance": 0, "start": 10, "end": 35, "work": 10},
        {"rank": 0, "op": "step_end", "instance": 1, "start": 42, "end": 42, "anchor": 0, "work": 7},
        {"rank": 1, "op": "all_reduce", "instance": 0, "start": 30, "end": 35, "work": 30},
        {"rank": 1, "op": "step_end", "instance": 2, "start": 36, "end": 36, "anchor": 2, "work": 1},
    ], ranks=2)  # fmt: skip
    assert told(replay) == [(1, "work", "all_reduce", 30), (0, "transfer", "all_reduce", 5), (0, "work", "step_end", 7)]
    (transfer,) = (part for part in critical_path(replay).segments if part.kind == "transfer")
    assert (transfer.last, transfer.overlapped) == (1, 0)


def test_computing_that_outlasts_a_collective_is_work() -> None:
    """20 of computing behind a collective of 5: the collective is not on the path at all."""
    replay = graph([
        {"rank": 0, "op": "all_gather", "instance": 0, "start": 10, "end": 15, "work": 10, "overlap": 20},
        {"rank": 0, "op": "step_end", "instance": 1, "start": 33, "end": 33, "anchor": 0, "work": 3},
    ], ranks=1)  # fmt: skip
    assert told(replay) == [(0, "work", "all_gather", 10), (0, "work", "all_gather", 20), (0, "work", "step_end", 3)]


def test_a_collective_partly_hidden_has_serial_and_overlapped_time() -> None:
    """Computing covers 8 of 20, so 12 are serial."""
    replay = graph([
        {"rank": 0, "op": "all_gather", "instance": 0, "start": 10, "end": 30, "work": 10, "overlap": 8},
        {"rank": 0, "op": "step_end", "instance": 1, "start": 33, "end": 33, "anchor": 0, "work": 3},
    ], ranks=1)  # fmt: skip
    (transfer,) = (part for part in critical_path(replay).segments if part.kind == "transfer")
    assert (transfer.duration, transfer.overlapped) == (20, 8)
    assert critical_path(replay).total == 33


def test_a_collective_beside_the_main_line_counts_from_where_the_main_line_waited() -> None:
    """Gradients are summed from 10 to 50 while the rank computes until 30; then it waits, and goes on 2 later."""
    replay = graph([
        {"rank": 0, "op": "reduce_scatter", "instance": 0, "start": 10, "end": 50, "work": 10},
        {"rank": 0, "op": "step_end", "instance": 1, "start": 52, "end": 52, "work": 30, "after": 0, "lag": 2},
    ], ranks=1)  # fmt: skip
    path = critical_path(replay)
    assert told(replay) == [
        (0, "work", "reduce_scatter", 10), (0, "transfer", "reduce_scatter", 40), (0, "wait", "step_end", 2),
    ]  # fmt: skip
    assert path.segments[1].overlapped == 20 and path.total == 52


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Case:
    root = tmp_path_factory.mktemp("path")
    simulate(root / "run", SPEC, ["slow-rank:2:1.3"])
    return Case(paceline.open(root / "run", store=root / "store"))


def test_segments_add_up_to_the_replayed_run(slow: Case) -> None:
    path = critical_path(slow.replay)
    base = slow.replay.base
    begins = slow.line.begin[list(slow.line.events.ranks).index(path.segments[0].rank)]
    assert path.total == pytest.approx(np.nanmax(base.step_ends) - begins, rel=1e-5)
    assert path.total == pytest.approx(sum(path.time_of(kind) for kind in ("work", "transfer", "wait")))


def test_the_work_on_the_path_is_the_slow_ranks(slow: Case) -> None:
    path = critical_path(slow.replay)
    own = sum(part.duration for part in path.segments if part.kind == "work" and part.rank == 2)
    assert own / path.time_of("work") > 0.95


def test_operators_are_named_and_ordered_by_serial_time(slow: Case) -> None:
    path = critical_path(slow.replay)
    times = communication_operators(slow.run, slow.replay, path)
    assert all(time.name.startswith("hcom_allReduce") for time in times)
    assert [time.serial for time in times] == sorted((time.serial for time in times), reverse=True)
    assert sum(time.serial + time.overlapped for time in times) == pytest.approx(path.time_of("transfer"))
    assert sum(time.last_count for time in times if time.last == 2) / sum(time.count for time in times) > 0.9
    # Gradients are the largest messages: (50.3 MB at 18 GB/s) = 2.8 ms each, the tensor-parallel ones 0.24 ms.
    assert times[0].serial / times[0].count > 5 * times[-1].serial / times[-1].count
