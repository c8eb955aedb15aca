"""The same operator on different ranks, against times worked out by hand."""

from __future__ import annotations

import pytest

from hand_made import HandMade
from paceline.analysis.operators import operator_statistics


def kernel(rank: int, name: str, duration: int, **more: object) -> dict[str, object]:
    return {"rank": rank, "step": 1, "type": name, "core": "AI_CORE", "duration": duration, **more}


def test_the_slowest_rank_is_held_against_the_median() -> None:
    slow = {0: 1_000_000, 1: 1_200_000, 2: 3_000_000}
    run = HandMade(
        kernels=[kernel(rank, "MatMul", duration) for rank, duration in slow.items() for _ in range(4)]
        + [kernel(rank, "Add", 500_000) for rank in slow]
        + [kernel(rank, "hcom_allReduce_", 10**9, core="COMMUNICATION") for rank in slow]
    )
    table = operator_statistics(run, "true")
    assert table.texts["name"] == ["MatMul", "Add"]
    first = {name: column[0] for name, column in table.numbers.items()}
    assert first["ranks"] == 3 and first["count"] == 12 and first["slowest_rank"] == 2
    assert first["median"] == pytest.approx(1.2) and first["slowest"] == pytest.approx(3.0)
    assert first["ratio"] == pytest.approx(2.5)
    assert first["excess"] == pytest.approx((3.0 - 1.2) * 4)
    assert table.numbers["excess"][1] == 0


def test_other_shapes_are_another_operator() -> None:
    run = HandMade(kernels=[kernel(rank, "MatMul", 1_000 * (rank + 1), input_shapes=f"{rank},1") for rank in (0, 1)])
    assert operator_statistics(run, "true").numbers["ratio"].tolist() == [1, 1]


def test_sums_are_compared_where_nothing_finer_was_recorded() -> None:
    sums = [{"rank": rank, "level": "type", "name": "Conv", "count": 10, "time": 10 * time, "core": "AI_CORE"}
            for rank, time in ((0, 2_000), (1, 2_000), (2, 5_000))]  # fmt: skip
    run = HandMade(operators=[*sums, {**sums[0], "level": "name", "name": "Conv-op1"}])
    table = operator_statistics(run, "true")
    assert table.texts["name"] == ["Conv"] and table.numbers["slowest_rank"].tolist() == [2]
    assert table.numbers["ratio"].tolist() == [2.5] and table.numbers["excess"].tolist() == [pytest.approx(0.03)]
