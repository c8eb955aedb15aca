"""Result tables: what DuckDB gives, as columns of numbers and texts."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.table import Table, as_table, query
from support.fake_run import FakeRun


def test_a_query_gives_numbers_with_nan_and_texts_with_none() -> None:
    run = FakeRun(ranks=[{"rank": 0, "host": "a"}, {"rank": 1, "stage": 3}])
    table = query(run, "SELECT rank, host, stage FROM ranks ORDER BY rank")
    assert table.numbers["rank"].tolist() == [0, 1] and table.numbers["rank"].dtype == np.float64
    assert table.numbers["stage"].tolist() == pytest.approx([np.nan, 3], nan_ok=True)
    assert table.texts == {"host": ["a", None]} and table.length == 2


def test_texts_are_strings_whatever_they_were() -> None:
    assert as_table({"x": np.array(["a", 7], dtype=object)}).texts == {"x": ["a", "7"]}


def test_the_length_is_that_of_any_column() -> None:
    assert Table({}, {"x": ["a", None]}).length == 2
    assert Table({"x": np.zeros(3)}, {}).length == 3
    assert Table({}, {}).length == 0


def test_a_change_of_texts_leaves_the_unknown_and_the_numbers() -> None:
    table = Table({"n": np.ones(2)}, {"x": ["a", None]})
    changed = table.map_texts(str.upper)
    assert changed.texts == {"x": ["A", None]} and changed.numbers is table.numbers
