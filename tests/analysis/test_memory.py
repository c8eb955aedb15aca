"""Device memory, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hand_made import HandMade
from paceline.analysis.memory import largest_allocations, memory_curve, memory_imbalance, memory_peaks

GIB = 2**30


def test_headroom_is_what_the_peak_leaves() -> None:
    run = HandMade(
        ranks_memory=[
            {"rank": 1, "peak": 30 * GIB, "basis": "measured"},
            {"rank": 0, "peak": 20 * GIB, "capacity": 32 * GIB, "basis": "measured"},
            {"rank": 2, "capacity": 32 * GIB},
        ]
    )
    table = memory_peaks(run)
    assert table.numbers["rank"].tolist() == [0, 1]
    assert table.numbers["headroom"][0] == 12 * GIB and np.isnan(table.numbers["headroom"][1])


def test_a_rank_is_compared_with_the_lower_half_of_its_peers() -> None:
    peaks = np.array([10.0, 12.0, 15.0, 40.0, 7.0])
    uneven = memory_imbalance(peaks, ((0, 1, 2), (3,), (4,)))
    assert uneven[:3] == pytest.approx([10 / 11 - 1, 12 / 11 - 1, 15 / 11 - 1])
    assert np.isnan(uneven[3:]).all()


def test_a_thinned_curve_keeps_its_peak() -> None:
    used = [min(i, 1000 - i) for i in range(1000)]
    used[777] = 5_000
    run = HandMade(
        memory=[{"rank": 0, "kind": "sample", "name": "PTA", "time": i * 10**9, "allocated": used[i]}
                for i in range(1000)]
        + [{"rank": 0, "kind": "operator", "name": "x", "size": 1}, {"rank": 1, "kind": "sample", "time": 0}]
    )  # fmt: skip
    table = memory_curve(run, 0, most=50)
    assert 50 <= table.length <= 51
    assert table.numbers["allocated"].max() == 5_000
    assert table.numbers["x"][0] == 0 and (np.diff(table.numbers["x"]) > 0).all()
    assert memory_curve(run, 0).length == 1000


def test_the_largest_allocations_come_first() -> None:
    sizes = [("Add", 10), ("MatMul", 30), ("MatMul", 50), ("Cast", 40), ("Gelu", 5)]
    run = HandMade(
        memory=[{"rank": 0, "kind": "operator", "name": name, "size": size, "lifetime": size * 10**6}
                for name, size in sizes] + [{"rank": 0, "kind": "sample", "name": "PTA", "allocated": 10**9}]
    )  # fmt: skip
    table = largest_allocations(run, most=2)
    assert table.texts["name"] == ["MatMul", "Cast"]
    assert table.numbers["largest"].tolist() == [50, 40] and table.numbers["total"].tolist() == [80, 40]
    assert table.numbers["count"].tolist() == [2, 1] and table.numbers["lifetime"].tolist() == [50, 40]
