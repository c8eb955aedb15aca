"""The same operator on different ranks, against times worked out by hand."""

from __future__ import annotations

import pytest

from paceline.metrics.operators import (
    OPERATOR_TIMES,
    OperatorTime,
    compared_operators,
    host_operators_against_peers,
    kernels_against_peers,
)
from support.fake_run import FakeRun

MS = 1_000_000


def kernel(rank: int, kind: str, duration: float, **more: object) -> dict[str, object]:
    return {"rank": rank, "step": 1, "type": kind, "core": "AI_CORE", "duration": int(duration * MS), **more}


def compared(run: FakeRun, groups: dict[int, int], *, by_name: bool = False) -> list[dict[str, object]]:
    peers = ", ".join(f"({rank}, {group}, 2)" for rank, group in groups.items())
    found = run.sql(
        f"""
        WITH operator_times AS ({OPERATOR_TIMES.format(chosen="true")}),
             rank_peers(rank, peer_group, steps) AS (VALUES {peers})
        FROM ({compared_operators(by_name=by_name)}) ORDER BY rank, type, name
        """
    )
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def test_one_execution_is_compared_with_the_fast_half_of_the_peers() -> None:
    means = {0: 1.0, 1: 1.2, 2: 3.0}
    run = FakeRun(
        kernels=[kernel(rank, "MatMul", time) for rank, time in means.items() for _ in range(4)]
        + [kernel(0, "Add", 0.5), kernel(0, "hcom_allReduce_", 1000, core="COMMUNICATION")]
    )
    add, first, _, slow = compared(run, {0: 0, 1: 0, 2: 0})
    assert (add["type"], add["reference"], add["excess"]) == ("Add", None, None)  # nobody else runs it
    assert (slow["rank"], slow["count"], slow["time"], slow["mean"]) == (2, 4, 6, 3)  # 12 ms in two steps
    assert slow["reference"] == pytest.approx(1.1) and slow["excess"] == pytest.approx(3 / 1.1 - 1)
    assert first["share"] == pytest.approx(4 / 4.5) and (slow["min"], slow["max"]) == (3, 3)


def test_ranks_of_other_groups_are_not_compared() -> None:
    run = FakeRun(kernels=[kernel(rank, "MatMul", 1 + rank) for rank in (0, 1)])
    assert [row["excess"] for row in compared(run, {0: 0, 1: 1})] == [None, None]


def test_operators_by_name() -> None:
    run = FakeRun(
        kernels=[
            kernel(rank, "MatMul", time, name=name) for rank in (0, 1) for name, time in (("a", 1), ("b", 3 + rank))
        ]
    )
    found = {(row["rank"], row["name"]): row["excess"] for row in compared(run, {0: 0, 1: 0}, by_name=True)}
    assert found == {(0, "a"): 0, (1, "a"): 0, (0, "b"): 0, (1, "b"): pytest.approx(1 / 3)}


def test_sums_are_compared_where_nothing_finer_was_recorded() -> None:
    sums = [
        {"rank": rank, "level": "type", "name": "Conv", "count": 10, "time": 10 * time, "core": "AI_CORE"}
        for rank, time in ((0, 2_000), (1, 2_000), (2, 5_000))
    ]
    found = compared(FakeRun(operators=sums), {0: 0, 1: 0, 2: 0})
    assert [(row["type"], row["excess"]) for row in found] == [("Conv", 0), ("Conv", 0), ("Conv", 1.5)]


def test_times_are_summed_by_rank_type_name_and_core_in_the_steps_chosen() -> None:
    rows = [
        kernel(0, "MatMul", 3, name="a"),
        kernel(0, "MatMul", 5, name="a"),
        kernel(0, "MatMul", 7, name="a", core="MIX_AIC"),
        kernel(0, "MatMul", 9, name="a", step=2),
        {**kernel(0, "", 2, name="b", core=None), "type": None},
    ]
    found = (
        FakeRun(kernels=rows).sql(f"FROM ({OPERATOR_TIMES.format(chosen='step = 1')}) ORDER BY type, core").fetchall()
    )
    assert found == [
        (0, "MatMul", "a", "AI_CORE", 2, 8 * MS, 3 * MS, 5 * MS),
        (0, "MatMul", "a", "MIX_AIC", 1, 7 * MS, 7 * MS, 7 * MS),
        (0, "b", "b", None, 1, 2 * MS, 2 * MS, 2 * MS),
    ]


def test_of_sums_the_finest_grain_counts_and_only_of_ranks_without_kernels() -> None:
    def summed(rank: int, level: str, name: str, **more: str) -> dict[str, object]:
        row = {"rank": rank, "level": level, "name": name, "type": "T", "core": "AI_CORE", "count": 2, "time": 8}
        return {**row, "min": 3, "max": 5, **more}

    sums = [summed(0, "type", "T"), summed(1, "type", "T"), summed(1, "name", "T1"), summed(2, "type", "T")]
    sums += [summed(2, "name", "c", core="COMMUNICATION")]
    run = FakeRun(kernels=[kernel(0, "X", 1)], operators=sums)
    assert run.sql(f"FROM ({OPERATOR_TIMES.format(chosen='true')}) ORDER BY rank").fetchall() == [
        (0, "X", None, "AI_CORE", 1, MS, MS, MS),
        (1, "T", "T1", "AI_CORE", 2, 8, 3, 5),
        (2, "T", None, "AI_CORE", 2, 8, 3, 5),
    ]


def test_an_operator_has_its_time_per_step_its_share_and_its_extremes() -> None:
    rows = [kernel(0, "MatMul", 2, name="a"), kernel(0, "MatMul", 4, name="b", core="MIX_AIC"), kernel(0, "Add", 2)]
    rows += [kernel(1, "MatMul", time) for time in (1, 3, 6)] + [kernel(2, "MatMul", 9), kernel(3, "MatMul", 1)]
    found = {(row["rank"], row["type"]): row for row in compared(FakeRun(kernels=rows), {0: 0, 1: 0, 2: 0})}
    one = found[0, "MatMul"]
    assert one["core"] in ("AI_CORE, MIX_AIC", "MIX_AIC, AI_CORE")
    assert [one[name] for name in ("count", "time", "share", "mean", "min", "max")] == [2, 3, 0.75, 3, 2, 4]
    # Means 3, 10 / 3 and 9: the fast half is 3 and 10 / 3, which take 6 and 10 ms in two steps.
    assert (one["reference"], one["reference_time"]) == (pytest.approx(19 / 6), 4)
    assert (found[3, "MatMul"]["reference"], found[3, "MatMul"]["time"]) == (None, 1)  # no peers known, one step taken


def test_operators_by_name_leave_nameless_ones_out() -> None:
    run = FakeRun(kernels=[kernel(0, "MatMul", 2, name="a"), kernel(0, "MatMul", 2), kernel(1, "MatMul", 3)])
    assert [(row["rank"], row["name"]) for row in compared(run, {0: 0, 1: 0}, by_name=True)] == [(0, "a")]
    assert [row["excess"] for row in compared(run, {0: 0, 1: 0})] == [0, 0.5]


def test_operators_that_take_no_time_have_no_excess() -> None:
    run = FakeRun(kernels=[kernel(0, "NoOp", 0), kernel(1, "NoOp", 0)])
    assert [(row["reference"], row["excess"]) for row in compared(run, {0: 0, 1: 0})] == [(0, None), (0, None)]
    empty = {"level": "type", "name": "Conv", "core": "AI_CORE", "count": 0, "time": 0}
    [row] = compared(FakeRun(operators=[{"rank": 0, **empty}]), {0: 0})
    assert row["mean"] is None


def test_a_rank_against_its_peers() -> None:
    run = FakeRun(
        kernels=[kernel(rank, "MatMul", time, step=n) for rank, time in ((0, 1), (1, 1), (2, 3)) for n in (1, 2)]
    )
    [one] = kernels_against_peers(run, 2, (0, 1, 2), "step = 1")
    assert (one.type, one.time, one.reference_time, one.mean, one.reference, one.excess) == ("MatMul", 3, 1, 3, 1, 2)
    assert kernels_against_peers(run, 2, (2,), "true") == []


def test_a_rank_is_compared_in_kernels_with_a_type_that_compute() -> None:
    rows = [kernel(rank, "MatMul", 1 + rank, step=n) for rank in (0, 1, 7) for n in (1, 2)]
    rows += [kernel(rank, "hcom", 5, core="COMMUNICATION") for rank in (0, 1)]
    rows += [{**kernel(rank, "", 5, name="x", core=None), "type": None} for rank in (0, 1)] + [kernel(1, "Add", 1)]
    rows += [kernel(rank, "MatMul", 3 + rank, core="MIX_AIC") for rank in (0, 1)]
    [one] = kernels_against_peers(FakeRun(kernels=rows), 1, (0, 1), "true")
    # 2, 2 and 4 ms in two steps; the other rank 1, 1 and 3.
    assert (one.time, one.reference_time, one.mean) == (4, 2.5, pytest.approx(8 / 3))
    assert one.reference == pytest.approx(5 / 3) and one.excess == pytest.approx(0.6)


def test_operators_on_the_host_count_without_those_they_call_in_the_step_they_run_in() -> None:
    """Of each rank two steps of 100 ms; linear calls mm after 1 ms, and needs 2 ms besides it."""

    def call(rank: int, name: str, at: float, duration: float, depth: int, **more: object) -> dict[str, object]:
        row = {"rank": rank, "track": "main", "name": name, "category": "cpu_op", "depth": depth}
        return {**row, "start": int(at * MS), "duration": int(duration * MS), **more}

    def rank(number: int, mm: float) -> list[dict[str, object]]:
        steps = [(10.0, 1), (110.0, 1), (210.0, 1)]  # the last one is in no step
        return [
            row
            for at, depth in steps
            for row in (
                call(number, "aten::linear", at, mm + 2, depth),
                call(number, "aten::mm", at + 1, mm, depth + 1),
                call(number, "aten::mm", at + 1, 90, depth + 1, track="another thread", category="user_annotation"),
                call(number, "c10d::allreduce_", at + 50, 40, depth),
            )
        ]

    steps = [
        {"rank": number, "step": step, "start": (step - 1) * 100 * MS, "end": step * 100 * MS}
        for number in (0, 1)
        for step in (1, 2)
    ]
    run = FakeRun(events=[*rank(0, 4), *rank(1, 6)], steps=steps)
    assert sorted(host_operators_against_peers(run, 1, (0, 1), "true"), key=lambda one: one.type) == [
        OperatorTime("aten::linear", 2, 2, 2, 2, 0),
        OperatorTime("aten::mm", 6, 4, 6, 4, 0.5),
    ]
    [mm] = [one for one in host_operators_against_peers(run, 1, (0, 1), "step = 2") if one.type == "aten::mm"]
    assert (mm.time, mm.mean) == (6, 6)
