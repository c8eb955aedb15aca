"""The path that decided the end of a run, worked out by hand on small graphs; ns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paceline.replay.critical_path import (
    CriticalPath,
    OperatorTime,
    Segment,
    communication_operators,
    critical_path,
)
from paceline.replay.replay import Replay
from support.fake_run import FakeRun
from support.small_timeline import Row, event, small_timeline, step_end


def graph(*rows: Row, **more: Any) -> Replay:
    return Replay(small_timeline(rows, **more))


def told(replay: Replay) -> list[tuple[int, str, str, float]]:
    return [(part.rank, part.kind, part.op, part.duration) for part in critical_path(replay).segments]


def transfer(replay: Replay) -> Segment:
    [found] = (part for part in critical_path(replay).segments if part.kind == "transfer")
    return found


MEETING = (
    event(0, "all_reduce", 0, 10, 35, work=10),
    step_end(0, 1, 42, work=7, anchor=0),
    event(1, "all_reduce", 0, 30, 35, work=28),
    step_end(1, 2, 36, work=1, anchor=2),
)
"""Rank 1 begins at 2 and computes 28, rank 0 only 10; 5 of transfer; then rank 0 needs 7 and rank 1 only 1."""


def test_the_path_goes_through_the_last_to_arrive() -> None:
    replay = graph(*MEETING, begin=[0, 2], ranks=[4, 8])
    assert told(replay) == [(8, "work", "all_reduce", 28), (4, "transfer", "all_reduce", 5), (4, "work", "step_end", 7)]
    path = critical_path(replay)
    assert path.segments[:2] == (
        Segment(8, "work", "all_reduce", 28, overlapped=0, row=-1, last=-1),
        Segment(4, "transfer", "all_reduce", 5, overlapped=0, row=0, last=8),
    )
    assert path.total == 40 and [path.time_of(kind) for kind in ("work", "transfer", "wait")] == [35, 5, 0]


def test_the_path_of_a_fix_is_that_of_its_costs() -> None:
    replay = graph(*MEETING, begin=[0, 2])
    fixed = replace(replay.costs, work=np.array([10.0, 7.0, 3.0, 1.0]))
    assert critical_path(replay, fixed).total == 10 + 5 + 7


def test_where_no_step_ended_there_is_no_path() -> None:
    assert critical_path(graph(MEETING[0])).segments == () and CriticalPath(()).total == 0


@pytest.mark.parametrize(
    ("end", "overlap", "expected"),
    [
        # 20 of computing behind a collective of 5: the collective is not on the path at all.
        (15, 20, [("work", "all_gather", 10), ("work", "all_gather", 20), ("work", "step_end", 3)]),
        (29, 20, [("work", "all_gather", 10), ("work", "all_gather", 20), ("work", "step_end", 3)]),
        (30, 20, [("work", "all_gather", 10), ("transfer", "all_gather", 20), ("work", "step_end", 3)]),
        (30, 8, [("work", "all_gather", 10), ("transfer", "all_gather", 20), ("work", "step_end", 3)]),
    ],
)
def test_computing_that_outlasts_a_collective_is_work(
    end: int, overlap: int, expected: list[tuple[str, str, int]]
) -> None:
    replay = graph(event(0, "all_gather", 0, 10, end, work=10, overlap=overlap), step_end(0, 1, 33, work=3, anchor=0))
    assert [part[1:] for part in told(replay)] == expected
    assert critical_path(replay).total == 33


@pytest.mark.parametrize(("overlap", "hidden"), [(0, 0), (8, 8), (20, 20)])
def test_the_part_of_a_transfer_that_computing_covers_is_overlapped(overlap: int, hidden: int) -> None:
    replay = graph(event(0, "all_gather", 0, 10, 30, work=10, overlap=overlap), step_end(0, 1, 33, work=3, anchor=0))
    assert (transfer(replay).duration, transfer(replay).overlapped) == (20, hidden)


def test_computing_before_the_last_has_arrived_hides_nothing_of_the_transfer() -> None:
    """Rank 0 computes from 10 to 34 behind a collective that the last joins at 30: 4 of its 5 are hidden."""
    replay = graph(MEETING[0] | {"overlap": 24}, *MEETING[1:], begin=[0, 2])
    assert (transfer(replay).duration, transfer(replay).overlapped) == (5, 4)
    assert transfer(graph(MEETING[0] | {"overlap": 12}, *MEETING[1:], begin=[0, 2])).overlapped == 0


@pytest.mark.parametrize(
    ("work", "path", "hidden"),
    [
        (
            30,
            [("work", 10), ("transfer", 40), ("wait", 2)],
            20,
        ),  # computes until 30, while gradients move from 10 to 50
        (51, [("work", 10), ("transfer", 40), ("wait", 2)], 40),
        (52, [("work", 52)], None),
        (60, [("work", 60)], None),
    ],
)
def test_a_collective_on_a_side_stream_counts_from_where_the_critical_stream_waited(
    work: int, path: list[tuple[str, float]], hidden: float | None
) -> None:
    replay = graph(
        event(0, "reduce_scatter", 0, 10, 50, work=10, side=1),
        step_end(0, 1, 52, work=work, anchor=-1, after=0, lag=2),
    )
    assert [(part.kind, part.duration) for part in critical_path(replay).segments] == path
    if hidden is not None:
        assert transfer(replay).overlapped == hidden


@pytest.mark.parametrize(
    ("lag", "path"),
    [
        # The critical stream is free at 30 (8 of its 20 hidden) and works until 37; the side stream ends at 35.
        (3, [("work", 10), ("transfer", 5), ("work", 1), ("transfer", 19), ("wait", 3)]),
        (2, [("work", 10), ("transfer", 5), ("work", 5), ("transfer", 10), ("work", 7)]),
    ],
)
def test_whoever_is_later_decides_the_critical_stream_or_the_side_stream(
    lag: int, path: list[tuple[str, float]]
) -> None:
    replay = graph(
        event(0, "all_gather", 0, 10, 15, work=10),
        event(0, "reduce_scatter", 1, 16, 35, work=1, anchor=0, side=1),
        event(0, "all_reduce", 2, 20, 30, work=5, anchor=0, overlap=8),
        step_end(0, 3, 37, work=7, anchor=2, after=1, lag=lag),
    )
    assert [(part.kind, part.duration) for part in critical_path(replay).segments] == path
    assert [part.overlapped for part in critical_path(replay).segments if part.op == "all_reduce"][1:] == [8] * (
        lag == 2
    )


@pytest.mark.parametrize(
    ("work", "path", "hidden"),
    [
        # The critical stream is free when the gather ends, at 15; gradients move from 16 to 35 and are waited for until 37.
        (15, [("work", 10), ("transfer", 5), ("work", 1), ("transfer", 19), ("wait", 2)], [0, 14]),  # computes until 30
        (21, [("work", 10), ("transfer", 5), ("work", 1), ("transfer", 19), ("wait", 2)], [0, 19]),
        (22, [("work", 10), ("transfer", 5), ("work", 22)], [0]),
    ],
)
def test_the_critical_stream_computes_from_the_end_of_the_first_event_of_all(
    work: int, path: list[tuple[str, float]], hidden: list[float]
) -> None:
    replay = graph(
        event(0, "all_gather", 0, 10, 15, work=10),
        event(0, "reduce_scatter", 1, 16, 35, work=1, anchor=0, side=1),
        step_end(0, 2, 37, work=work, anchor=0, after=1, lag=2),
    )
    segments = critical_path(replay).segments
    assert [(part.kind, part.duration) for part in segments] == path
    assert [part.overlapped for part in segments if part.kind == "transfer"] == hidden


def test_a_side_stream_that_computing_outlasts_is_still_waited_for() -> None:
    """The stream waits for the collective, not for what was computed behind it."""
    replay = graph(
        event(0, "reduce_scatter", 0, 10, 50, work=10, side=1, overlap=90),
        step_end(0, 1, 52, work=30, anchor=-1, after=0, lag=2),
    )
    assert [part.kind for part in critical_path(replay).segments] == ["work", "transfer", "wait"]


def test_the_last_step_end_of_all_ranks_ends_the_path() -> None:
    replay = graph(
        event(0, "all_reduce", 0, 10, 12, work=10),
        step_end(0, 1, 20, work=8, anchor=0),
        event(0, "all_reduce", 3, 25, 29, work=5, anchor=1, step=1),
        step_end(0, 4, 30, work=1, anchor=2, step=1),
        step_end(1, 2, 15, work=15, anchor=-1),
        step_end(1, 5, 29, work=14, anchor=4, step=1),
        steps=(1, 2),
    )
    # The step end between has no duration, so it is no transfer.
    assert [part[1:] for part in told(replay)] == [
        ("work", "all_reduce", 10),
        ("transfer", "all_reduce", 2),
        ("work", "step_end", 8),
        ("work", "all_reduce", 5),
        ("transfer", "all_reduce", 4),
        ("work", "step_end", 1),
    ]


SENT = (
    event(0, "send", 0, 10, 12, work=10),
    event(0, "send", 1, 100, 102, work=88, anchor=0),
    step_end(0, 2, 110, work=8, anchor=1),
)
RECEIVED = (
    event(1, "receive", 0, 5, 30, work=5),
    event(1, "receive", 1, 150, 153, work=120, anchor=3),
    step_end(1, 3, 160, work=7, anchor=4),
)


def test_a_message_that_came_late_leads_to_its_sender_and_one_that_had_come_does_not() -> None:
    """Buffered: the first message arrives at 30, 20 after its send; the second had arrived before its receive (150 to 153)."""
    replay = graph(*SENT, *RECEIVED, buffered_sends=True)
    assert told(replay) == [
        (0, "work", "send", 10),
        (1, "transfer", "receive", 20),
        (1, "work", "receive", 120),
        (1, "transfer", "receive", 3),
        (1, "work", "step_end", 7),
    ]
    assert [part.last for part in critical_path(replay).segments if part.kind == "transfer"] == [0, 1]


def test_a_circle_in_the_graph_ends() -> None:
    replay = graph(
        event(0, "all_reduce", 0, 1, 2, work=1, anchor=1),
        step_end(0, 1, 3, work=1, anchor=0),
    )
    # As many rounds as two visits per row allow.
    assert 4 <= len(critical_path(replay).segments) <= 8


def test_operators_on_the_path_have_their_recorded_names_and_most_serial_time_first() -> None:
    def call(rank: int, name: str | None, start: int, op: str = "all_reduce") -> dict[str, object]:
        return {"rank": rank, "name": name, "start": start, "op": op}

    replay = graph(*MEETING, begin=[0, 2], ranks=[4, 8])
    found = CriticalPath(
        (
            Segment(4, "work", "all_reduce", 10),
            Segment(4, "transfer", "all_reduce", 5, 1, row=0, last=8),
            Segment(8, "transfer", "all_reduce", 20, 4, row=2, last=4),
            Segment(4, "transfer", "all_reduce", 3, 0, row=0, last=8),
            Segment(4, "transfer", "step_end", 7, 0, row=1, last=8),
            Segment(8, "transfer", "all_to_all", 7, 0, row=3, last=8),
        )
    )
    run = FakeRun(
        collectives=[
            call(4, "grads", 10),
            call(4, "no", 11),
            call(4, "no", 10, "send"),
            call(8, "grads", 30),
            call(4, None, 42, "step_end"),
        ]
    )
    assert communication_operators(run, replay, found) == (  # type: ignore[arg-type]
        OperatorTime("grads", "all_reduce", serial=23, overlapped=5, count=3, last=8, last_count=2),
        OperatorTime("all_to_all", "all_to_all", serial=7, overlapped=0, count=1, last=8, last_count=1),
        OperatorTime("step_end", "step_end", serial=7, overlapped=0, count=1, last=8, last_count=1),
    )
    assert communication_operators(run, replay, CriticalPath(())) == ()  # type: ignore[arg-type]
