"""Arrivals at collectives, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from paceline.metrics.communication.collectives import (
    COLLECTIVE_ARRIVALS,
    COLLECTIVES_COMPARED,
    arrivals,
    rank_communication,
    waiting_shares,
    with_derived,
)
from support.fake_run import FakeRun

MS = 1_000_000


def stay(rank: int, start: float | None, duration: float, sequence: int = 0, **more: object) -> dict[str, object]:
    return {
        "rank": rank,
        "step": 1,
        "group": "g",
        "op": "all_reduce",
        "sequence": sequence,
        "name": f"ar{sequence}",
        "start": None if start is None else int(start * MS),
        "duration": int(duration * MS),
        **more,
    }


RECORDED = {"transit": 2 * MS, "bytes": 4_000_000}
RUN = FakeRun(
    groups=[{"group": "g", "kind": "dp", "rank": rank, "index": rank} for rank in range(3)],
    collectives=[
        stay(0, 10, 8, wait=6 * MS, **RECORDED),
        stay(1, 11, 7, wait=5 * MS, **RECORDED),
        stay(2, 16, 2, wait=0, **RECORDED),
        stay(0, 30, 1, 1),
        stay(1, 30, 1, 1),
        {**stay(0, 0, 99), "op": "send", "sequence": 9},
    ],
)


def rows(run: FakeRun, select: str) -> list[dict[str, object]]:
    found = run.sql(select)
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def test_a_collective_shows_who_came_last_and_what_the_others_waited() -> None:
    first, second = rows(RUN, f"{with_derived('collective_instances')} FROM ({COLLECTIVES_COMPARED}) ORDER BY sequence")
    assert (first["members"], first["spread"], first["last_rank"], first["waited"]) == (3, 6, 2, 11)
    assert (first["longest"], first["shortest"], first["kind"], first["name"]) == (8, 2, "dp", "ar0")
    assert first["bandwidth"] == pytest.approx(2.0)  # 12 MB in 6 ms of moving
    assert (second["members"], second["last_rank"]) == (2, 0)  # both at once: the lower rank


def test_only_collectives_of_a_group_with_a_number_that_several_ranks_recorded_have_an_instance() -> None:
    lonely = [
        stay(0, 1, 1, 7),
        *({**stay(rank, 1, 1, 8), "op": op} for rank in (0, 1) for op in ("send", "receive")),
        *({**stay(rank, 1, 1, 9), "group": None} for rank in (0, 1)),
        *({**stay(rank, 1, 1), "sequence": None} for rank in (0, 1)),
        *({**stay(rank, 1 + rank, 1, 5), "step": 3 - rank, "name": f"of {rank}"} for rank in (1, 0)),
    ]
    run = FakeRun(collectives=lonely)
    [one] = rows(run, f"{with_derived('collective_instances')} FROM collective_instances")
    assert (one["sequence"], one["members"], one["step"], one["name"]) == (5, 2, 2, "of 0")


def test_an_instance_holds_the_two_last_arrivals_and_sums() -> None:
    first = rows(RUN, f"{with_derived('collective_instances')} FROM collective_instances ORDER BY sequence")[0]
    expected = {"first_arrival": 10, "arrival_before_last": 11, "last_arrival": 16, "waited": 11, "transit": 6}
    assert {name: first[name] / MS for name in expected} == expected  # type: ignore[operator]
    assert first["bytes"] == 12_000_000


def test_members_arrive_after_the_first_and_wait_for_the_last() -> None:
    select = f"{with_derived('collective_instances')} FROM ({COLLECTIVE_ARRIVALS}) WHERE sequence = 0 ORDER BY rank"
    wanted = ("late", "waited", "duration", "transit", "wait", "bytes")
    assert [tuple(row[name] for name in wanted) for row in rows(RUN, select)] == [
        (0, 6, 8, 2, 6, 4_000_000),
        (1, 5, 7, 2, 5, 4_000_000),
        (6, 0, 2, 2, 0, 4_000_000),
    ]


def test_arrivals_of_ranks() -> None:
    late = arrivals(RUN, "true").numbers
    assert late["blocked_time"].tolist() == [0, 0, 5] and late["waited"].tolist() == [6, 5, 0]
    assert late["instances"].tolist() == [2, 2, 1] and late["last"].tolist() == [1, 0, 1]
    assert late["expected"] == pytest.approx([1 / 3 + 1 / 2, 1 / 3 + 1 / 2, 1 / 3])
    assert late["last_share"].tolist() == [0.5, 0, 1] and late["rank"].tolist() == [0, 1, 2]
    assert late["expected_share"] == pytest.approx([5 / 12, 5 / 12, 1 / 3])


def two_steps() -> FakeRun:
    """Rank 1 is 4 late in step 1 and 2 late in step 2; a third step has no instance."""
    return FakeRun(
        collectives=[
            *(stay(rank, 10 + 4 * rank, 6, step=1, **RECORDED) for rank in (0, 1)),
            *(stay(rank, 30 + 2 * rank, 8, 1, step=2, **RECORDED) for rank in (0, 1)),
            {**stay(0, 50, 7, 2, step=3), "op": "send"},
        ]
    )


def test_arrivals_are_per_step_in_which_there_were_any_and_of_the_steps_chosen() -> None:
    late = arrivals(two_steps(), "true").numbers
    assert late["blocked_time"].tolist() == [0, 3] and late["waited"].tolist() == [3, 0]
    assert late["last"].tolist() == [0, 2] and late["last_share"].tolist() == [0, 1]
    assert late["expected"].tolist() == [1, 1] and late["expected_share"].tolist() == [0.5, 0.5]
    assert arrivals(two_steps(), "step = 2").numbers["waited"].tolist() == [2, 0]
    nameless = FakeRun(collectives=[stay(rank, 10 + rank, 9, step=None) for rank in (0, 1)])
    assert arrivals(nameless, "true").numbers["waited"].tolist() == [1, 0]  # all in one step


def test_early_is_at_most_the_stay_and_only_the_last_blocks() -> None:
    run = FakeRun(collectives=[stay(0, 10, 8), stay(1, 20, 2), stay(2, 14, 9)])
    found = rows(run, f"{with_derived('rank_collectives')} FROM rank_collectives ORDER BY rank")
    wanted = ("early", "waited", "waiting", "blocked_time", "duration")
    in_ms = [tuple(None if row[name] is None else row[name] / MS for name in wanted) for row in found]  # type: ignore[operator]
    assert in_ms == [(8, 10, 8, None, 8), (0, 0, 0, 6, 2), (6, 6, 6, None, 9)]
    assert [(row["calls"], row["instances"], row["last"]) for row in found] == [(1, 1, 0), (1, 1, 1), (1, 1, 0)]


def test_no_waiting_is_worked_out_from_members_that_left_long_before_the_last_arrived() -> None:
    run = FakeRun(collectives=[stay(0, 10, 3), stay(1, 20, 2)])
    found = rows(run, f"{with_derived('rank_collectives')} FROM rank_collectives ORDER BY rank")
    assert [(row["instances"], row["early"], row["waiting"]) for row in found] == [(0, None, None), (0, None, None)]


def test_communication_of_ranks_per_step() -> None:
    first = rows(RUN, f"{with_derived('rank_collectives')} FROM ({rank_communication('true')}) ORDER BY rank")[0]
    assert (first["calls"], first["time"], first["waiting"], first["last"]) == (3, 108, 6, 0.5)
    assert first["waiting_share"] == pytest.approx(6 / 108) and first["bandwidth"] == pytest.approx(2.0)
    late = rows(
        two_steps(), f"{with_derived('rank_collectives')} FROM ({rank_communication('step < 3')}) ORDER BY rank"
    )
    assert [late[1][name] for name in ("calls", "time", "waiting", "transit", "bytes", "blocked_time", "last")] == [
        1, 7, 0, 2, 4_000_000, 3, 1,
    ]  # fmt: skip
    assert (late[0]["waiting"], late[0]["waiting_share"], late[0]["bandwidth"]) == (3, pytest.approx(3 / 7), 2)
    assert (late[0]["blocked_time"], late[0]["last"]) == (None, 0)


def test_a_step_that_knows_only_begin_and_end_does_not_thin_the_means_of_the_others() -> None:
    """Two steps of 6 ms each; transfer (4 ms), waiting (2 ms) and bytes were recorded in the first only."""
    known = {**stay(0, 10, 6, step=1), "transit": 4_000_000, "wait": 2_000_000, "bytes": 8_000_000}
    unknown = {**stay(0, 30, 6, 1, step=2), "transit": None, "wait": None, "bytes": None}
    [row] = rows(
        FakeRun(collectives=[known, unknown]),
        f"{with_derived('rank_collectives')} FROM ({rank_communication('true')})",
    )
    assert [row[name] for name in ("calls", "time", "waiting", "transit", "bytes")] == [1, 6, 2, 4, 8_000_000]
    assert (row["waiting_share"], row["bandwidth"]) == (pytest.approx(2 / 6), 2)


def test_a_cut_step_is_left_out_and_counts_only_where_no_other_is_known() -> None:
    """Ten calls a step; the recording splits all of step 1 (begin of training), a third of step 2 and nothing of step 3."""

    def calls(step: int, known: int) -> list[dict[str, object]]:
        split = {"transit": MS, "wait": 3 * MS, "bytes": 1_000_000}
        none = dict.fromkeys(split)
        return [
            stay(0, 100 * step + at, 5, 10 * step + at, step=step, **(split if at < known else none))
            for at in range(10)
        ]

    def mean(chosen: str, *recorded: int) -> dict[str, object]:
        made = [call for step, known in enumerate(recorded, 1) for call in calls(step, known)]
        select = rank_communication(chosen, otherwise="true")
        return rows(FakeRun(collectives=made), f"{with_derived('rank_collectives')} FROM ({select})")[0]

    cut = mean("step > 1", 10, 3, 0)
    assert (cut["waiting"], cut["transit"], cut["time"], cut["split_steps"]) == (19.5, 6.5, 50, "1, 2")
    whole = mean("step > 1", 10, 10, 3, 0)
    assert (whole["waiting"], whole["transit"], whole["time"], whole["split_steps"]) == (30, 10, 50, None)
    assert whole["waiting_share"] == pytest.approx(0.6)
    never = mean("step > 1", 0, 0)
    assert (never["waiting"], never["time"], never["split_steps"]) == (None, 50, None)


def test_without_starts_the_shortest_stay_came_last() -> None:
    run = FakeRun(collectives=[stay(rank, None, stayed) for rank, stayed in enumerate((9, 3, 8))])
    [one] = rows(run, f"{with_derived('collective_instances')} FROM ({COLLECTIVES_COMPARED})")
    assert (one["last_rank"], one["spread"], one["waited"], one["longest"]) == (1, 6, 11, 9)
    members = rows(run, f"{with_derived('collective_instances')} FROM ({COLLECTIVE_ARRIVALS}) ORDER BY rank")
    assert [(row["late"], row["waited"]) for row in members] == [(0, 6), (6, 0), (1, 5)]
    found = rows(run, f"{with_derived('rank_collectives')} FROM rank_collectives ORDER BY rank")
    assert [(row["early"], row["waited"]) for row in found] == [(6 * MS, 6 * MS), (0, 0), (5 * MS, 5 * MS)]


def test_the_wait_share_leaves_receives_out_and_takes_arrivals_where_no_wait_was_recorded() -> None:
    silent = [stay(0, 10, 8), stay(1, 14, 4), {**stay(0, 30, 50, 1), "op": "receive"}]
    found = waiting_shares(FakeRun(collectives=silent)).numbers
    shares = dict(zip(found["rank"].tolist(), found["share"].tolist(), strict=True))
    assert shares == {0: 0.5, 1: 0}
    assert dict(zip(*(waiting_shares(RUN).numbers[name].tolist() for name in ("rank", "share")), strict=True)) == {
        0: pytest.approx(6 / 108),
        1: pytest.approx(5 / 8),
        2: 0,
    }
