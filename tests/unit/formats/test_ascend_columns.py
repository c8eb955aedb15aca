"""Columns of Ascend databases: what NumPy does to whole arrays is what would be done to each value."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import FormatError
from paceline.formats.ascend_db import database as database_module
from paceline.formats.ascend_db.columns import (
    CallSums,
    StringIds,
    as_column,
    durations,
    labelled,
    scaled_column,
    sum_calls,
)
from paceline.formats.ascend_db.database import open_database
from paceline.formats.units import scaled_decimal

ids = st.lists(st.one_of(st.none(), st.integers(-3, 9), st.integers(-(2**63), 2**63 - 1)), min_size=1)
odd_ids = st.lists(st.one_of(st.none(), st.integers(-3, 9), st.text(max_size=3), st.floats(), st.binary(max_size=3)))


@given(
    st.lists(st.one_of(st.floats(), st.floats(0, 1e7), st.integers(-(2**63), 2**63 - 1))),
    st.sampled_from([1, 1000, 10**6]),
)
def test_scaled_columns_round_like_decimals(values: list[float], unit: int) -> None:
    assert scaled_column(values, unit).tolist() == [scaled_decimal(value, unit) for value in values]


@given(st.lists(st.integers(0, 10**9).map(lambda number: (number + 0.5) / 1e6)))
def test_halves_round_like_decimals(values: list[float]) -> None:
    assert scaled_column(values, 10**6).tolist() == [scaled_decimal(value, 10**6) for value in values]


@given(st.lists(st.one_of(st.none(), st.text(max_size=4), st.floats())))
def test_scaled_text_and_nulls(values: list[Any]) -> None:
    assert scaled_column(values, 1000).tolist() == [scaled_decimal(value, 1000) for value in values]


@given(st.one_of(ids, odd_ids), st.booleans())
def test_string_ids(values: list[Any], keeps_text: bool) -> None:
    known = {1: "one", 5: "five", 7: "N/A"}
    expected = [value if keeps_text and isinstance(value, str) else known.get(value) for value in values]
    found = StringIds(known, keeps_text).of(as_column(values), str.upper).tolist()
    assert found == [None if text is None else text.upper() for text in expected]


def test_string_ids_beyond_positions() -> None:
    assert StringIds({2**40: "far", -4: "negative"}).of(as_column([2**40, -4, 0])).tolist() == ["far", "negative", None]


def test_durations_and_labels_of_nulls() -> None:
    starts, ends = as_column([5, 5, 5, None]), as_column([7, None, 4, 9])
    assert durations(starts, ends).tolist() == [2, None, None, None]
    assert labelled("Stream ", as_column([2, None, 2])).tolist() == ["Stream 2", "Stream None", "Stream 2"]


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, None, "x"]), st.sampled_from([3, 4]), st.one_of(st.none(), st.integers(0, 99)))
    ),
    st.integers(0, 9),
)
def test_sums_of_calls(calls: list[tuple[Any, int, int | None]], cut: int) -> None:
    summed: dict[tuple[Any, Any], CallSums] = {}
    for part in (calls[:cut], calls[cut:]):
        if part:
            layers, names, times = zip(*part, strict=True)
            known = as_column(times)
            sum_calls(summed, durations(as_column([0] * len(times)), known), as_column(layers), as_column(names))
    expected: dict[tuple[Any, Any], CallSums] = {}
    for key in {(layer, name) for layer, name, _ in calls}:
        times = [time for *call, time in calls if tuple(call) == key]
        timed = [time for time in times if time is not None]
        expected[key] = CallSums(len(times), *((sum(timed), min(timed), max(timed)) if timed else (None, None, None)))
    assert summed == expected


@given(st.lists(st.one_of(st.integers(-5, 60), st.integers(-(2**63), 2**63 - 1))))
def test_labels_of_numbers_near_and_far(values: list[int]) -> None:
    assert labelled("Stream ", np.array(values, dtype=np.int64)).tolist() == [f"Stream {value}" for value in values]


def test_sums_beyond_64_bits_are_refused() -> None:
    times = np.array([2**62, 2**62])
    with pytest.raises(FormatError, match="64 bits"):
        sum_calls({}, times, None, np.array([1, 1]))


@pytest.mark.parametrize("table", ["t (start INTEGER, id INTEGER)", "t (start TEXT, id)", "t (start, id, rowid)"])
def test_chunks_hold_every_row_once(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "CHUNK", 10)
    rows = [(time, "word" if time == 31 else time % 3 or None) for time in range(-5, 95)]
    with sqlite3.connect(tmp_path / "small.db") as connection:
        connection.execute(f"CREATE TABLE {table}")
        connection.executemany("INSERT INTO t (start, id) VALUES (?, ?)", rows)
        connection.execute("DELETE FROM t WHERE start BETWEEN '40' AND '60' OR start BETWEEN 40 AND 60")
    connection.close()
    with open_database(tmp_path / "small.db") as database:
        chunks = list(database.timed_columns("t", ["t.start"], ["t.id"]))
    found = [row for start, values in chunks for row in zip(start.tolist(), values.tolist(), strict=True)]
    kept = [(time, value) for time, value in rows if time >= 0 and (str(time), value) in _text_rows(tmp_path)]
    assert found == kept and len(chunks) > 5


def _text_rows(directory: Path) -> set[tuple[str, Any]]:
    connection = sqlite3.connect(directory / "small.db")
    rows = set(connection.execute("SELECT CAST(start AS TEXT), id FROM t").fetchall())
    connection.close()
    return rows
