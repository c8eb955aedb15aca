"""Values that stand apart: Student's t against tables, Rosner's test by hand."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.outliers import high_outliers, student_tail


@pytest.mark.parametrize(
    ("t", "degrees", "tail"),
    # Of printed tables of Student's distribution.
    [(6.314, 1, 0.05), (2.920, 2, 0.05), (2.353, 3, 0.05), (5.893, 6, 0.00053), (2.764, 10, 0.01), (3.787, 7, 0.0034),
     (2.364, 100, 0.01)],
)  # fmt: skip
def test_the_tail_of_students_t(t: float, degrees: int, tail: float) -> None:
    assert student_tail(t, degrees) == pytest.approx(tail, rel=0.02)


def test_as_often_above_as_below_the_middle() -> None:
    assert [student_tail(0.0, degrees) for degrees in (1, 2, 7, 8)] == [0.5] * 4


def test_two_that_are_slow_do_not_hide_each_other() -> None:
    values = np.array([1.00, 1.01, 0.99, 1.00, 1.01, 0.99, 1.00, 1.00, 1.50, 1.52])
    assert high_outliers(values, 0.001) == [8, 9]


def test_only_what_is_high_and_known() -> None:
    assert high_outliers(np.array([1.00, 1.01, 0.99, 1.00, 0.50, 1.01, np.nan, 0.99, 1.00]), 0.01) == []


def test_half_of_the_values_are_no_exception() -> None:
    assert high_outliers(np.array([1.0] * 4 + [2.0] * 4), 0.01) == []


def test_equal_values_stand_together_and_anything_apart_from_them() -> None:
    assert high_outliers(np.ones(8), 0.01) == []
    assert high_outliers(np.array([1.0] * 7 + [1.001]), 0.01) == [7]


def test_chance_finds_as_many_as_it_may() -> None:
    random = np.random.default_rng(7)
    found = sum(bool(high_outliers(random.normal(1, 0.005, 16), 0.05)) for _ in range(2000))
    assert 60 <= found <= 160  # 5 % of 2,000 is 100
