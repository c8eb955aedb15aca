"""Unions of intervals against counting every unit of time by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.formats.intervals import merge_intervals, without

times = st.integers(-40, 40)
intervals = st.lists(st.tuples(times, times), max_size=12)


@given(intervals, times, st.integers(0, 50))
def test_covered_length_equals_counting_the_units_inside(spans: list[tuple[int, int]], begin: int, length: int) -> None:
    inside = {unit for start, end in spans for unit in range(start, end)}
    window = set(range(begin, begin + length))
    starts = np.array([start for start, _ in spans], dtype=np.int64)
    ends = np.array([end for _, end in spans], dtype=np.int64)
    merged = merge_intervals(starts, ends)
    lower, upper = np.array([begin]), np.array([begin + length])
    assert merged.covered(lower, upper).tolist() == [len(inside & window)]


@given(intervals)
def test_merged_intervals_are_in_order_and_disjoint(spans: list[tuple[int, int]]) -> None:
    merged = merge_intervals(
        np.array([s for s, _ in spans], dtype=np.int64), np.array([e for _, e in spans], dtype=np.int64)
    )
    assert (merged.ends > merged.starts).all()
    assert (merged.starts[1:] > merged.ends[:-1]).all()


@given(intervals, intervals)
def test_without_is_what_one_union_covers_and_the_other_does_not(
    spans: list[tuple[int, int]], removed: list[tuple[int, int]]
) -> None:
    def union(of: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        return np.array([s for s, _ in of], dtype=np.int64), np.array([e for _, e in of], dtype=np.int64)

    expected = {unit for start, end in spans for unit in range(start, end)}
    expected -= {unit for start, end in removed for unit in range(start, end)}
    starts, ends = without(merge_intervals(*union(spans)), merge_intervals(*union(removed)))
    assert [
        unit for start, end in zip(starts.tolist(), ends.tolist(), strict=True) for unit in range(start, end)
    ] == sorted(expected)
