"""Numbers decoded from the pages of a SQLite file are those that SQLite reads."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.errors import FormatError
from paceline.formats.ascend_db import database as database_module
from paceline.formats.ascend_db.database import Join, open_database
from paceline.formats.ascend_db.pages import PageError

Row = tuple[Any, ...]

integers = st.one_of(
    st.none(), st.integers(-2, 300), st.integers(-(2**31), 2**31), st.integers(-(2**63), 2**63 - 1), st.just(10**18)
)
texts = st.one_of(st.none(), st.text(max_size=3), st.just("x" * 70))
rows_of_a_table = st.lists(st.tuples(integers, texts, integers), min_size=1, max_size=60)


def _write(path: Path, rows: list[Row], *, page: int = 512, keyed: bool = False) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA page_size = {page}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        key = "key INTEGER PRIMARY KEY, " if keyed else ""
        connection.execute(f"CREATE TABLE t ({key}one INTEGER, word TEXT, other INTEGER)")
        connection.executemany("INSERT INTO t (one, word, other) VALUES (?, ?, ?)", rows)
        connection.execute("DELETE FROM t WHERE rowid % 7 = 3")
        connection.commit()


def _by_sqlite(path: Path, query: str) -> list[Row]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def _by_pages(path: Path, table: str, names: list[str]) -> list[Row]:
    with open_database(path) as database:
        chunks = list(database.columns_of(table, [f"{table}.{name}" for name in names]))
    return [row for columns in chunks for row in zip(*(column.tolist() for column in columns), strict=True)]


@pytest.fixture
def without_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("SQLite was asked")

    monkeypatch.setattr(database_module.Database, "_from_sqlite", fail)


@given(rows_of_a_table, st.sampled_from([512, 1024, 4096]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_numbers_are_those_that_sqlite_reads(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], page: int, keyed: bool
) -> None:
    path = tmp_path_factory.mktemp("pages") / "a.db"
    _write(path, rows, page=page, keyed=keyed)
    names = ["one", "other", *(["key"] if keyed else [])]
    assert _by_pages(path, "t", names) == _by_sqlite(path, f"SELECT {', '.join(names)} FROM t")


def test_deep_trees_are_read_without_sqlite(tmp_path: Path, without_sqlite: None) -> None:
    rows = [(number * 10**14, "x" * (number % 90), None if number % 5 else number % 2) for number in range(20_000)]
    _write(tmp_path / "a.db", rows)
    found = _by_pages(tmp_path / "a.db", "t", ["other", "one"])
    assert found == _by_sqlite(tmp_path / "a.db", "SELECT other, one FROM t")


def test_an_added_column_is_unknown_in_older_rows(tmp_path: Path, without_sqlite: None) -> None:
    _write(tmp_path / "a.db", [(1, "a", 2)] * 20)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("ALTER TABLE t ADD COLUMN later INTEGER")
        connection.execute("INSERT INTO t VALUES (3, 'b', 4, 5)")
        connection.commit()
    assert _by_pages(tmp_path / "a.db", "t", ["one", "later"])[-2:] == [(1, None), (3, 5)]


@pytest.mark.parametrize(
    "table",
    [
        "t (one INTEGER, later INTEGER DEFAULT 7)",
        "t (one INTEGER PRIMARY KEY, later INTEGER) WITHOUT ROWID",
        "t (one INTEGER, later INTEGER GENERATED ALWAYS AS (one + 1) VIRTUAL, last INTEGER DEFAULT 5)",
    ],
)
def test_tables_that_hold_other_than_their_records_are_read_by_sqlite(table: str, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {table}")
        connection.executemany("INSERT INTO t (one) VALUES (?)", [(number,) for number in range(9)])
        connection.commit()
    last = "last" if "last" in table else "later"
    assert _by_pages(path, "t", ["one", last]) == _by_sqlite(path, f"SELECT one, {last} FROM t")


@pytest.mark.parametrize("odd", [2.5, "12", "y" * 3000, b"\x01"])
def test_the_rows_from_an_odd_one_on_are_read_by_sqlite(odd: object, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    _write(path, [(number, None, number) for number in range(30_000)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE t SET one = ?, word = ? WHERE other = 29000", [odd, "z" * 3000])
        connection.commit()
    found = _by_pages(path, "t", ["other", "one"])
    assert [other for other, _ in found] == [other for (other,) in _by_sqlite(path, "SELECT other FROM t")]
    assert dict(found)[29000] == {2.5: 2, "12": 12}.get(odd)


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("twice", [True, False])
def test_joined_rows_are_those_that_sqlite_joins(required: bool, gaps: bool, twice: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    generator = random.Random(4)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (start INTEGER, number INTEGER)")
        connection.execute("CREATE TABLE info (number INTEGER, name INTEGER)")
        numbers = [number * (3 if gaps else 1) for number in range(50)] + ([0] if twice else []) + [None]
        generator.shuffle(numbers)
        connection.executemany(
            "INSERT INTO info VALUES (?, ?)", [(number, generator.choice([None, 4, 5])) for number in numbers]
        )
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(at, at % 60 or None) for at in range(300)])
        connection.commit()
    join = Join("info", "number", required=required)
    with open_database(path) as database:
        found = [
            row
            for columns in database.columns_of("t", ["t.start"], ["info.name"], join)
            for row in zip(*(column.tolist() for column in columns), strict=True)
        ]
    assert sorted(found, key=str) == sorted(_by_sqlite(path, f"SELECT start, name FROM {join.sql('t')}"), key=str)


@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=12), st.integers(0, 2**20))
@settings(max_examples=60, deadline=None)
def test_damaged_pages_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "a.db"
    _write(path, [(number * 10**9, "word" * (number % 40), number) for number in range(400)])
    data = bytearray(path.read_bytes())
    for position, value in changes:
        data[position % len(data)] = value
    path.write_bytes(data[: len(data) - (cut % len(data) if cut % 2 else 0)])
    try:
        with open_database(path) as database:
            if database.has("t", "one", "other"):
                for columns in database.columns_of("t", ["t.one", "t.other"]):
                    assert {len(column) for column in columns} == {len(columns[0])} and len(columns[0]) < 10**5
    except FormatError:
        pass


def test_too_many_rows_to_join_are_left_to_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "MOST_JOINED", 10)
    path = tmp_path / "a.db"
    _write(path, [(number, None, number) for number in range(100)])
    with open_database(path) as database:
        with pytest.raises(PageError):
            list(database._from_pages("t", ["t.one"], Join("t", "other")))
        [[column, _]] = database.columns_of("t", ["t.one"], ["t.other"])
    assert np.all(column >= 0)
