"""Rows that are dealt unevenly, and the time they explain."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.metrics.uneven_work import UnevenWork, uneven_payload, uneven_work
from support.fake_run import FakeRun
from support.small_cluster import MS, SmallCluster

LAYERS = 4


def kernels(rows: dict[int, list[int]], ms_per_row: dict[int, float], **more: Any) -> list[dict[str, Any]]:
    """One kernel per layer: rows by rank and layer."""
    return [
        {
            "rank": rank, "step": 1, "type": "grouped_gemm", "core": "GPU", "start": layer * 1000 * MS,
            "duration": round(count * ms_per_row.get(rank, 1.0) * MS), "input_shapes": f"{count},64;64,64", **more,
        }
        for rank, counts in rows.items()
        for layer, count in enumerate(counts)
    ]  # fmt: skip


def found(rows: list[dict[str, Any]], ranks: tuple[int, ...] = (0, 1)) -> UnevenWork | None:
    return uneven_work(FakeRun(kernels=rows), ranks, [1])


def test_more_rows_in_more_time() -> None:
    uneven = found(kernels({0: [10, 10, 10, 10], 1: [30, 10, 30, 10]}, {}))
    assert uneven is not None
    assert (uneven.ranks, uneven.types) == ((0, 1), ("grouped_gemm",))
    # Two layers of four are uneven, with a mean of 20: rank 1 has 10 ms too much in each, rank 0 as much too little.
    assert uneven.rows == {0: 20, 1: 60}
    assert (uneven.peak, uneven.correlation) == (1.5, pytest.approx(1.0))
    assert uneven.extra == pytest.approx({0: -20 * MS, 1: 20 * MS})


def test_the_same_rows_in_more_time_are_not_uneven() -> None:
    assert found(kernels({0: [10, 20, 30, 40], 1: [10, 20, 30, 40]}, {1: 3.0})) is None


def test_rows_that_do_not_decide_the_time_explain_nothing() -> None:
    flat = kernels({0: [10, 10, 10, 10], 1: [30, 30, 30, 30]}, {0: 1.0, 1: 1 / 3})
    assert found(flat) is None


def test_about_as_many_rows_are_even() -> None:
    assert found(kernels({0: [100] * LAYERS, 1: [110] * LAYERS}, {})) is None  # 105 on average: 5 % is not above 5 %


def test_places_that_a_peer_does_not_have_are_left_out() -> None:
    assert found(kernels({0: [10, 10, 10, 10], 1: [30, 10, 30, 10]}, {}), ranks=(0, 1, 2)) is None


def test_the_gradient_of_a_weight_has_its_rows_inside() -> None:
    rows = {0: [10] * LAYERS, 1: [30] * LAYERS}
    # (8192 x rows) (rows x 64): the outer dimension is the same on all ranks, the inner one is the tokens.
    gradients = [
        {**kernel, "input_shapes": f"8192,{rows[kernel['rank']][0]};{rows[kernel['rank']][0]},64"}
        for kernel in kernels(rows, {})
    ]
    uneven = found(gradients)
    assert uneven is not None
    assert uneven.rows == {0: 40, 1: 120}
    assert uneven.extra == pytest.approx({0: -40 * MS, 1: 40 * MS})


def test_more_is_what_exceeds_the_fast_half() -> None:
    uneven = found(kernels({0: [8] * LAYERS, 1: [8] * LAYERS, 2: [8] * LAYERS, 3: [16] * LAYERS}, {}), (0, 1, 2, 3))
    assert uneven is not None
    # Mean 10: rank 3 has 6 rows too many in each of 4 places, its peers 2 too few; it computes 8 ms longer than they do.
    assert uneven.extra == pytest.approx({0: -8 * MS, 1: -8 * MS, 2: -8 * MS, 3: 24 * MS})
    assert uneven.more(3) == pytest.approx(32 * MS)
    assert uneven.more(0) == 0


@pytest.mark.parametrize("more", [{"input_shapes": None}, {"core": "COMMUNICATION"}, {"input_shapes": "64"}])
def test_nothing_is_known_without_rows(more: dict[str, Any]) -> None:
    assert found(kernels({0: [10, 10, 10, 10], 1: [30, 10, 30, 10]}, {}, **more)) is None


def exchange(times: list[tuple[float, float]], sizes: list[tuple[int, int]]) -> UnevenWork | None:
    """Two ranks that compute so long, then send so many bytes; one step."""
    cluster = SmallCluster(2)
    for (time_0, time_1), (size_0, size_1) in zip(times, sizes, strict=True):
        cluster.work([time_0, time_1])
        cluster.meet([0, 1], 1, op="all_to_all")
        for row, size in zip(cluster.collectives[-2:], (size_0, size_1), strict=True):
            row["bytes"] = size
    cluster.end_step()
    return uneven_payload(cluster.context().timeline, (0, 1))


def test_what_is_sent_stands_for_rows() -> None:
    uneven = exchange([(10, 30), (10, 30)], [(100, 300), (100, 300)])
    assert uneven is not None
    assert uneven.types == ()
    assert uneven.rows == {0: 200, 1: 600}
    # Mean 200 bytes: rank 1 works 30 (1 - 200/300) = 10 ms too long, twice.
    assert uneven.extra == pytest.approx({0: -20 * MS, 1: 20 * MS})


def test_what_goes_out_to_experts_is_not_what_was_computed_before_it() -> None:
    """As uneven as what comes back, behind work that is the same on both ranks: only what comes back tells."""
    cluster = SmallCluster(2)
    for _ in range(3):
        for times in ((40, 40), (10, 30)):
            cluster.work(times)
            cluster.meet([0, 1], 1, op="all_to_all")
            for row, size in zip(cluster.collectives[-2:], (100, 300), strict=True):
                row["bytes"] = size
        cluster.end_step()
    uneven = uneven_payload(cluster.context().timeline, (0, 1))
    assert uneven is not None and uneven.extra == pytest.approx({0: -10 * MS, 1: 10 * MS})


def test_equal_payloads_and_slow_ranks_are_not_uneven_work() -> None:
    assert exchange([(10, 30), (10, 30)], [(200, 200), (200, 200)]) is None
