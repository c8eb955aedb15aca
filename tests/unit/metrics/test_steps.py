"""Which steps count, and the parts of a step, against parts worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.core.schema import INPUT_WAIT
from paceline.metrics.rank_performance import RankPerformance
from paceline.metrics.steps import (
    NO_STEP,
    PARTS,
    in_steps,
    input_wait,
    mean_by,
    read_steps,
    recorded_whole,
    shares_of,
    steady_steps,
    step_condition,
    step_parts,
)
from support.fake_run import FakeRun

MS = 1_000_000


def step(rank: int, number: int | None, **parts: int) -> dict[str, object]:
    return {"rank": rank, "step": number, **{name: value * MS for name, value in parts.items()}}


TYPICAL = {"duration": 100, "computing": 60, "overlapped": 10, "exposed": 25, "free": 15, "bubble": 5}


def run_of(*steps: dict[str, object], **more: list[dict[str, object]]) -> FakeRun:
    return FakeRun(ranks=[{"rank": rank} for rank in {row["rank"] for row in steps}], steps=list(steps), **more)


def only_row(run: FakeRun) -> dict[str, float]:
    return {name: column[0] for name, column in RankPerformance(run).rank_steps.numbers.items()}


def all_reduce(rank: int, number: int | None, *, wait: int, duration: int = 20) -> dict[str, object]:
    return {"rank": rank, "step": number, "op": "all_reduce", "duration": duration * MS, "wait": wait * MS}


def test_parts_add_up_to_the_step() -> None:
    row = only_row(run_of(step(0, 1, **TYPICAL), collectives=[all_reduce(0, 1, wait=5)]))
    # A quarter of the time inside collectives is waiting: 5 + (25 - 5) / 4.
    assert {name: row[name] for name in ("duration", *PARTS, "bubble")} == {
        "duration": 100,
        "compute": 50,
        "overlapped": 10,
        "exposed": 15,
        "waiting": 10,
        "tail": 0,
        "free": 15,
        "data": 0,
        "unknown": 0,
        "bubble": 5,
    }
    assert row["self_time"] == 75  # 100 - 25: what is left after exposed communication and waiting


@pytest.mark.parametrize(
    "recorded",
    [
        {"duration": 100, "computing": 90, "exposed": 30},
        {"duration": 100, "computing": 20, "overlapped": 40, "exposed": 10},
        {"duration": 100, "exposed": 130, "computing": 50, "bubble": 140},
        {"duration": 100, "forward_backward": 70, "tail": 50, "data_wait": 10},
        {"duration": 100, "computing": 100, "data_wait": 300},
        {"duration": 100},
    ],
)
def test_parts_add_up_whatever_was_recorded(recorded: dict[str, int]) -> None:
    row = only_row(run_of(step(0, 1, **recorded), collectives=[all_reduce(0, 1, wait=5)]))
    assert sum(row[part] for part in PARTS) == pytest.approx(100)
    assert all(row[part] >= 0 for part in PARTS)


@pytest.mark.parametrize(
    ("recorded", "parts"),
    [
        ({"computing": 90, "exposed": 30}, {"compute": 70, "exposed": 30}),
        ({"computing": 20, "overlapped": 40, "exposed": 10}, {"overlapped": 20, "exposed": 10, "free": 70}),
        ({"exposed": 130, "computing": 50, "bubble": 140}, {"waiting": 100, "bubble": 100}),
        (
            {"exposed": 30, "bubble": 10, "computing": 50},
            {"compute": 50, "exposed": 20, "waiting": 10, "free": 20, "bubble": 10},
        ),
        ({"forward_backward": 70, "tail": 50, "data_wait": 10}, {"compute": 60, "tail": 30, "data": 10}),
        ({"computing": 60, "forward_backward": 70, "tail": 20}, {"compute": 60, "free": 40}),
        ({"computing": 100, "overlapped": 20, "data_wait": 300}, {"overlapped": 20, "data": 80}),
        ({"computing": 80, "data_wait": 30}, {"compute": 70, "data": 30}),
        ({}, {"unknown": 100}),
        ({"data_wait": 10}, {"data": 10, "unknown": 90}),
    ],
)
def test_parts_are_cut_to_what_is_left_of_the_step(recorded: dict[str, int], parts: dict[str, int]) -> None:
    found = step_parts(read_steps(run_of(step(0, 1, duration=100, **recorded))))
    assert {name: column[0] / MS for name, column in found.items()} == dict.fromkeys((*PARTS, "bubble"), 0) | parts


def test_steps_are_read_by_rank_and_number_and_need_a_duration() -> None:
    rows = [
        step(1, 2, duration=5),
        step(1, None, duration=4),
        step(0, 7, duration=3),
        step(0, 8),
        step(0, 1, duration=2),
    ]
    found = read_steps(FakeRun(steps=[*rows, {"rank": None, "step": 1, "duration": 1}]))
    assert found.rank.tolist() == [0, 0, 1, 1] and found.step.tolist() == [1, 7, NO_STEP, 2]
    assert (found.duration / MS).tolist() == [2, 3, 4, 5] and np.isnan(found.exposed).all()


def test_means_by_key() -> None:
    keys, means = mean_by(np.array([7, 3, 7]), {"x": np.array([1.0, 5.0, 4.0])})
    assert keys.tolist() == [3, 7] and means["x"].tolist() == [5, 2.5]


def test_phases_give_compute_tail_and_input_wait() -> None:
    row = only_row(run_of(step(0, 1, duration=100, data_wait=10, forward_backward=60, tail=20)))
    assert (row["data"], row["compute"], row["tail"], row["free"]) == (10, 60, 20, 10)


def test_waiting_for_input_is_not_computing_even_where_the_recording_says_so() -> None:
    row = only_row(run_of(step(0, 1, duration=100, computing=90, exposed=10, data_wait=20)))
    assert (row["data"], row["compute"], row["exposed"]) == (20, 70, 10)


def test_each_step_has_the_wait_share_of_its_own_collectives() -> None:
    steps = [step(0, number, duration=100, computing=60, exposed=40) for number in (1, 2)]
    run = run_of(*steps, collectives=[all_reduce(0, 1, wait=5), all_reduce(0, 2, wait=20)])
    performance = RankPerformance(run)
    assert performance.rank_steps.numbers["waiting"].tolist() == [10, 40]
    assert performance.rank_means.numbers["waiting"].tolist() == [25]


def test_collectives_without_a_step_give_their_share_to_all_steps_of_the_rank() -> None:
    run = run_of(step(0, 1, duration=100, exposed=40), collectives=[all_reduce(0, None, wait=10)])
    assert only_row(run)["waiting"] == 20


def test_waiting_comes_from_the_arrivals_where_a_rank_records_none() -> None:
    steps = [step(rank, 1, duration=100, exposed=50) for rank in (0, 1)]
    meeting = {"step": 1, "op": "all_reduce", "group": "g", "sequence": 0, "duration": 10 * MS, "wait": 0}
    collectives = [{"rank": 0, "start": 20 * MS, **meeting}, {"rank": 1, "start": 26 * MS, **meeting}]
    waiting = RankPerformance(run_of(*steps, collectives=collectives)).rank_steps.numbers["waiting"]
    assert waiting.tolist() == [30, 0]  # rank 0 came 6 of 10 ms early


def test_means_are_over_steps_that_all_ranks_recorded() -> None:
    steps = [step(0, number, duration=100 * number, exposed=0) for number in (1, 2, 3)]
    steps += [step(1, number, duration=100, exposed=0) for number in (2, 3)]
    performance = RankPerformance(run_of(*steps))
    assert performance.steps.tolist() == [2, 3]
    assert performance.rank_means.numbers["duration"].tolist() == [250, 100]
    assert performance.rank_steps.numbers["steady"].tolist() == [0, 1, 1, 1, 1]


def test_all_steps_count_where_hardly_any_is_shared() -> None:
    assert steady_steps(np.array([1, 2, 2, 3])).tolist() == [1, 2, 3]
    assert steady_steps(np.array([1, 2, 2, 3, 3])).tolist() == [2, 3]
    assert steady_steps(np.array([], dtype=np.int64)).tolist() == []


def test_a_first_step_whose_begin_was_missed_and_an_empty_last_one_do_not_count() -> None:
    first = {"duration": 900, "forward_backward": 880}
    steady = {"duration": 100, "forward_backward": 80, "data_wait": 10}
    run = run_of(
        *(step(rank, number, **(first if number == 1 else steady)) for rank in (0, 1) for number in (1, 2, 3)),
        *({**step(rank, 4, duration=0), "data_wait": 0} for rank in (0, 1)),
    )
    assert recorded_whole(read_steps(run)).tolist() == [False, True, True, False] * 2
    performance = RankPerformance(run)
    assert performance.steps.tolist() == [2, 3]
    assert performance.rank_means.numbers["duration"].tolist() == [100, 100]


def test_input_wait_that_is_missing_elsewhere_too_says_nothing_of_the_first_step() -> None:
    run = run_of(*(step(0, number, duration=100, forward_backward=80) for number in (1, 2, 3)))
    assert recorded_whole(read_steps(run)).all()


def test_shares_of_all_ranks_together() -> None:
    run = run_of(step(0, 1, **TYPICAL), step(1, 1, **TYPICAL | {"duration": 200}))
    shares = shares_of(RankPerformance(run).rank_means)
    assert shares["compute"] == pytest.approx(100 / 300) and sum(shares.values()) == pytest.approx(1)
    assert shares_of(RankPerformance(FakeRun()).rank_means) == {}


def test_input_wait_in_sql_and_in_arrays_is_the_same() -> None:
    values = (None, 3, 8)
    steps = [
        step(0, number, duration=9, **{k: v for k, v in given.items() if v is not None})
        for number, given in enumerate(
            {"data_wait": wait, "preparing": before, "free": free}
            for wait in values
            for before in values
            for free in values
        )
    ]
    run = run_of(*steps)
    [in_sql] = zip(*run.sql(f"SELECT {INPUT_WAIT} FROM steps ORDER BY rank, step").fetchall(), strict=True)
    in_arrays = [None if np.isnan(value) else value for value in input_wait(read_steps(run))]
    assert in_arrays == list(in_sql)


def test_conditions_on_steps() -> None:
    run = run_of(step(0, 1, duration=1), step(0, 2, duration=1), step(0, None, duration=1))

    def chosen(condition: str) -> int:
        return run.sql(f"SELECT * FROM steps WHERE {condition}").fetchall().__len__()

    assert [chosen(step_condition([2])), chosen(step_condition([])), chosen(in_steps([2])), chosen(in_steps([]))] == [
        2,
        3,
        1,
        0,
    ]
