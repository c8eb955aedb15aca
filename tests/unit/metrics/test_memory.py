"""Device memory, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.memory import ALLOCATIONS, MOST_POINTS, memory_curve, rank_memory
from support.fake_run import FakeRun

GIB = 2**30


def test_headroom_and_share_are_of_what_there_is() -> None:
    run = FakeRun(
        ranks_memory=[
            {"rank": 1, "peak": 30 * GIB, "basis": "measured"},
            {"rank": 0, "peak": 20 * GIB, "capacity": 32 * GIB, "basis": "measured", "static": 5},
            {"rank": 2, "capacity": 32 * GIB},
            {"rank": 3, "peak": 1, "capacity": 1},
            {"rank": 4, "peak": 10 * GIB, "capacity": 0},
        ]
    )
    found = rank_memory(run, [0, 1, 2], ((0, 1, 2),), lambda peak: 2 * peak)
    table = found.numbers
    assert table["rank"].tolist() == [0, 1, 3, 4] and table["static"][0] == 5 and found.texts["basis"][0] == "measured"
    assert table["headroom"][0] == 12 * GIB and np.isnan(table["headroom"][1])
    assert table["share"].tolist() == [20 / 32, 1 / 2, 1, 1 / 2]
    assert np.isnan(rank_memory(run, [0, 1, 2], ()).numbers["share"][[1, 3]]).all()
    assert rank_memory(FakeRun(), [0], ((0,),)).length == 0


def test_a_rank_is_compared_with_the_lower_half_of_its_peers() -> None:
    peaks = [10, 12, 15, 40, 7]
    run = FakeRun(ranks_memory=[{"rank": rank, "peak": peak} for rank, peak in enumerate(peaks)])
    table = rank_memory(run, range(4), ((0, 1, 2), (3,))).numbers
    assert table["reference"][:3].tolist() == [11, 11, 11]
    assert table["excess"][:3] == pytest.approx([10 / 11 - 1, 12 / 11 - 1, 15 / 11 - 1])
    assert np.isnan(table["excess"][3:]).all()  # without peers, and without a step


def test_a_thinned_curve_keeps_its_peak() -> None:
    used = [min(i, 1000 - i) for i in range(1000)]
    used[777] = 5_000
    run = FakeRun(
        memory=[
            {"rank": 0, "kind": "sample", "name": "PTA", "time": i * 10**9, "allocated": used[i]} for i in range(1000)
        ]
        + [{"rank": 0, "kind": "operator", "name": "x", "size": 1}, {"rank": 1, "kind": "sample", "time": 0}]
    )
    table = memory_curve(run, 0, most=50)
    assert 50 <= table.length <= 51
    assert table.numbers["allocated"].max() == 5_000
    assert table.numbers["x"][0] == 0 and (np.diff(table.numbers["x"]) > 0).all()
    assert memory_curve(run, 0).length == 1000
    assert MOST_POINTS == 4_000


def test_a_curve_runs_over_seconds_since_its_first_sample_by_component() -> None:
    def sample(at: float, name: str | None, *used: int, kind: str = "sample", rank: int = 0) -> dict[str, object]:
        values = dict(zip(("allocated", "reserved", "active"), used, strict=True))
        return {"rank": rank, "kind": kind, "name": name, "time": int(at * 1e9), **values}

    rows = [
        sample(12, "GE", 1, 5, 9),
        sample(10, "PTA", 4, 3, 7),
        sample(14, None, 6, 6, 6),
        sample(14, "PTA", 2, 8, 1),
    ]
    other = [
        sample(1, "PTA", 9, 9, 9, rank=1),
        sample(2, "PTA", 9, 9, 9, kind="module"),
        {**sample(3, "x", 9, 9, 9), "time": None},
    ]
    # On two places 10 and 14 fall apart; 13.9 shares the place of 12 and loses nothing of its maxima.
    table = memory_curve(FakeRun(memory=[*rows, sample(13.9, "GE", 3, 2, 8), *other]), 0, most=2)
    assert table.texts["series"] == ["", "GE", "PTA", "PTA"] and set(table.texts["kind"]) == {"sample"}
    assert {name: column.tolist() for name, column in table.numbers.items()} == {
        "x": [4, 2, 0, 4],
        "allocated": [6, 3, 4, 2],
        "reserved": [6, 5, 3, 8],
        "active": [6, 9, 7, 1],
    }


def test_planned_memory_runs_over_the_nodes_of_the_graph_and_names_the_largest() -> None:
    rows = [
        {"rank": 0, "kind": "node", "name": f"node{place}", "position": place, "allocated": used}
        for place, used in ((0, 3), (1, 9), (3, 5), (8, 1))
    ]
    table = memory_curve(FakeRun(memory=rows), 0, most=2)  # 0, 1 and 3 are in the first half
    assert table.numbers["x"].tolist() == [0, 8] and table.numbers["allocated"].tolist() == [9, 1]
    assert table.texts["name"] == ["node1", "node8"] and table.texts["series"] == ["", ""]
    alone = memory_curve(FakeRun(memory=rows[:1]), 0)
    assert (alone.length, alone.numbers["x"].tolist()) == (1, [0])


def test_allocations_are_of_operators_and_planned_nodes() -> None:
    rows = [
        {"rank": 1, "kind": "operator", "name": "a", "size": 7, "lifetime": 3_000_000, "allocated": 90},
        {"rank": 1, "kind": "node", "name": "b", "allocated": 8, "position": 4},
        {"rank": 1, "kind": "sample", "name": "c", "allocated": 8},
    ]
    assert FakeRun(memory=rows).sql(f"FROM ({ALLOCATIONS}) ORDER BY name").fetchall() == [
        (1, "a", "operator", 7, 3.0, 90, None),
        (1, "b", "node", 8, None, 8, 4),
    ]
