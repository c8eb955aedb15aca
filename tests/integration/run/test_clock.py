"""One clock from collective ends: any skew is found, whatever ties the ranks together."""

from __future__ import annotations

import duckdb
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.schema import COLLECTIVES
from paceline.run.clock import clock_offsets


def connection_with(rows: list[tuple[int, str, str, int, int, int]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    columns = ", ".join(f'"{column.name}" {column.type}' for column in COLLECTIVES.columns)
    connection.execute(f"CREATE TABLE collectives ({columns})")
    names = ("rank", "group", "op", "sequence", "start", "duration")
    staged = {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    connection.register("staged", staged)
    connection.execute("INSERT INTO collectives BY NAME SELECT * FROM staged")
    return connection


def shared_collectives(
    groups: dict[str, list[int]], offsets: dict[int, int], *, seed: int, jitter: int = 1000
) -> list[tuple[int, str, str, int, int, int]]:
    random = np.random.default_rng(seed)
    rows = []
    for group, ranks in groups.items():
        for sequence in range(40):
            end = 10**18 + sequence * 10_000_000
            for rank in ranks:
                duration = int(random.integers(10_000, 5_000_000))
                finish = end + offsets[rank] + int(random.integers(-jitter, jitter + 1))
                rows.append((rank, group, "all_reduce", sequence, finish - duration, duration))
    return rows


@given(st.integers(0, 2**32), st.lists(st.integers(-(10**10), 10**10), min_size=8, max_size=8))
@settings(max_examples=25, deadline=None)
def test_offsets_are_found_through_overlapping_groups(seed: int, skews: list[int]) -> None:
    offsets = dict(enumerate(skews))
    groups = {"tp0": [0, 1], "tp1": [2, 3], "tp2": [4, 5], "tp3": [6, 7], "dp0": [0, 2, 4, 6], "dp1": [1, 3, 5, 7]}
    found = clock_offsets(connection_with(shared_collectives(groups, offsets, seed=seed)))
    assert found[0] == 0
    for rank in range(8):
        assert abs(found[rank] - (offsets[rank] - offsets[0])) <= 2500


def test_sends_and_receives_tie_stages_that_share_no_collective() -> None:
    offsets = {0: 0, 1: 50, 2: 7_000_000, 3: 7_000_050}
    rows = shared_collectives({"dp0": [0, 1], "dp1": [2, 3]}, offsets, seed=1, jitter=0)
    for place in range(10):
        finish = 10**18 + place * 1_000_000
        rows.append((0, "pp", "send", place, finish - 5000, 5000))
        rows.append((2, "pp", "receive", place, finish + offsets[2] - 90_000, 90_000))
    assert clock_offsets(connection_with(rows)) == offsets


def test_buffered_messages_tie_stages_half_way_between_both_directions() -> None:
    """90 µs in each direction; for every third message the receiver is waiting, the others are buffered for up to 5 ms."""
    random = np.random.default_rng(3)
    offsets = {0: 0, 1: -4_300_000}
    rows = []
    for place in range(30):
        for sender, receiver in ((0, 1), (1, 0)):
            sent = 10**18 + place * 20_000_000 + 10_000_000 * sender
            taken = sent + 90_000 + (int(random.integers(100_000, 5_000_000)) if place % 3 else 0)
            took = 3_000 if place % 3 else 800_000
            rows.append((sender, "pp", "send", place, sent + offsets[sender], 5_000))
            rows.append((receiver, "pp", "receive", place, taken + offsets[receiver] - took, took))
    assert clock_offsets(connection_with(rows)) == offsets


def test_ranks_without_shared_collectives_are_left_out() -> None:
    rows = shared_collectives({"dp0": [0, 1]}, {0: 0, 1: 5}, seed=3, jitter=0)
    rows.append((7, "alone", "all_reduce", 0, 10**18, 1000))
    assert clock_offsets(connection_with(rows)) == {0: 0, 1: 5}


def test_collectives_that_are_not_the_same_do_not_move_clocks() -> None:
    """Two stages may use one name for different collectives: their ends scatter, so they tie nothing."""
    random = np.random.default_rng(5)
    rows = []
    for sequence in range(50):
        for rank in (0, 1):
            start = 10**18 + int(random.integers(0, 10**9))
            rows.append((rank, "AllReduce-op1", "all_reduce", sequence, start, 1000))
    assert clock_offsets(connection_with(rows)) == {}
