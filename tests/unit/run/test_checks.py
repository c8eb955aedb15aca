"""What cannot be true becomes a warning."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.schema import TABLES
from paceline.run.checks import check_run

LOADED = ("ranks", "collectives", "transfers", "steps", "kernels", "ranks_memory", "flops")
RANKS = 2


def run_with(**rows: list[dict[str, object]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA raw")
    connection.execute("CREATE TABLE clock (rank BIGINT, clock_offset BIGINT)")
    connection.execute("CREATE TABLE recordings (rank BIGINT, format VARCHAR, path VARCHAR)")
    for rank in range(RANKS):
        connection.execute("INSERT INTO recordings VALUES (?, 'kineto', '.')", [rank])
    for table in LOADED:
        columns = ", ".join(f'"{column.name}" {column.type}' for column in TABLES[table].columns)
        connection.execute(f"CREATE TABLE raw.{table} ({columns})")
        connection.execute(f"CREATE VIEW {table} AS FROM raw.{table}")
        for row in rows.get(table, []):
            names = ", ".join(f'"{name}"' for name in row)
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO raw.{table} ({names}) VALUES ({marks})", list(row.values()))
    return connection


def messages(connection: duckdb.DuckDBPyConnection) -> list[str]:
    return [warning.message for warning in check_run(connection, LOADED)]


def test_a_transfer_faster_than_any_link_of_its_kind() -> None:
    fast = {"rank": 0, "src": 0, "dst": 1, "transport": "RDMA", "bytes": 781_000, "duration": 1_000}
    local = {**fast, "dst": 0, "transport": "LOCAL"}
    usual = {**fast, "duration": 100_000}
    [message] = messages(run_with(transfers=[fast, local, usual]))
    assert message.startswith("1 transfers over RDMA at up to 781 GB/s: no such link carries more than 100 GB/s")
    assert messages(run_with(transfers=[usual, local])) == []


def test_parts_that_are_longer_than_their_step() -> None:
    step = {"rank": 0, "step": 1, "duration": 100, "computing": 70, "exposed": 71}
    [message] = messages(run_with(steps=[step]))
    assert message.startswith("computing and exposed communication of 1 steps are up to 141 % of their duration")
    assert messages(run_with(steps=[{**step, "exposed": 30}])) == []


# -- any value that rows can have --------------------------------------------------------------------------------------

HEALTHY: dict[str, dict[str, object]] = {
    "steps": {
        "rank": 0, "step": 1, "duration": 10_000_000, "data_wait": 500_000, "computing": 6_000_000, "communication": 4_000_000,
        "overlapped": 1_000_000, "exposed": 3_000_000, "free": 1_000_000,
    },
    "collectives": {
        "rank": 0, "step": 1, "op": "all_reduce", "group": "g", "sequence": 0, "start": 0, "duration": 2_000_000,
        "wait": 1_000_000, "sync": 900_000, "transit": 1_000_000, "bytes": 4_000_000,
    },
    "transfers": {"rank": 0, "step": 1, "src": 0, "dst": 1, "transport": "RDMA", "bytes": 4_000_000, "duration": 400_000},
    "kernels": {"rank": 0, "step": 1, "start": 0, "duration": 1_000_000},
    "ranks_memory": {"rank": 0, "peak": 30, "capacity": 64, "static": 20},
    "flops": {"rank": 0, "utilisation": 0.4},
}  # fmt: skip
NUMBERS = [
    (table, column)
    for table, row in HEALTHY.items()
    for column, value in row.items()
    if isinstance(value, int | float) and column not in ("rank", "step", "sequence", "start", "src", "dst")
]


@pytest.fixture(scope="module")
def healthy() -> duckdb.DuckDBPyConnection:
    rows = {name: [row] for name, row in HEALTHY.items()}
    rows["collectives"].append(HEALTHY["collectives"] | {"rank": 1})
    rows["steps"].append(HEALTHY["steps"] | {"rank": 1})
    return run_with(**rows)


def perturbed_messages(connection: duckdb.DuckDBPyConnection, table: str, column: str, value: float) -> list[str]:
    """Of the healthy run with one number of rank 0 changed."""
    change = f"UPDATE raw.{table} SET {column} = ? WHERE rank = 0"
    connection.execute(change, [value if column == "utilisation" else int(value)])
    try:
        return messages(connection)
    finally:
        connection.execute(change, [HEALTHY[table][column]])


def _is_possible(table: str, column: str, value: float) -> bool:
    """What a person would say of the healthy row with this value, with the tolerance that the checks promise."""

    def within(part: float, whole: float) -> bool:
        return part <= whole * 1.02 + 1_000

    if value < 0 and (table in ("kernels", "transfers") or column in ("duration", "bytes", "peak", "capacity")):
        return False
    if table == "steps":
        row = {**HEALTHY["steps"], column: value}
        duration, computing, exposed, free, wait, hidden, communication = (
            float(str(row[name]))
            for name in ("duration", "computing", "exposed", "free", "data_wait", "overlapped", "communication")
        )
        inside = all(within(part, duration) for part in (computing, exposed, free, wait))
        adds_up = duration == 0 or computing + exposed <= 1.02 * duration
        return (
            inside
            and adds_up
            and (communication < 0 or within(hidden, communication))
            and (computing < 0 or within(hidden, computing))
        )
    if table == "collectives":
        if column == "bytes":
            return value == 4_000_000
        if column == "duration":
            return within(1_000_000, value)
        return column == "transit" or within(value, 2_000_000)
    if table == "transfers":
        size, time = (value, 400_000.0) if column == "bytes" else (4_000_000.0, value)
        return time <= 0 or size / time <= 100
    if table == "ranks_memory":
        peak, capacity, static = ({**HEALTHY[table], column: value}[name] for name in ("peak", "capacity", "static"))
        return not (float(str(capacity)) > 0 and float(str(peak)) > float(str(capacity))) and float(
            str(static)
        ) <= float(str(peak))
    return table != "flops" or 0 <= value <= 1


def test_a_healthy_run_has_no_warning(healthy: duckdb.DuckDBPyConnection) -> None:
    assert messages(healthy) == []


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NUMBERS), st.floats(-3, 12).map(lambda power: 10**power), st.booleans())
def test_whatever_a_number_becomes_it_is_possible_or_warned_about(
    healthy: duckdb.DuckDBPyConnection, place: tuple[str, str], size: float, negative: bool
) -> None:
    value = float(-size if negative else size)
    value = value if place[1] == "utilisation" else float(int(value))
    assert (perturbed_messages(healthy, *place, value) == []) == _is_possible(*place, value)


@pytest.mark.parametrize(
    ("table", "column", "value", "said"),
    [
        (
            "collectives",
            "wait",
            3_000_000,
            "1 collectives wait for longer than they last: the recording contradicts itself",
        ),
        ("collectives", "bytes", 8_000_000, "1 all-reduces have different payloads on their members"),
        ("ranks_memory", "peak", 65, "1 ranks use more memory than their device has"),
        ("flops", "utilisation", 1.2, "1 rows of floating-point work have an impossible utilisation"),
    ],
)
def test_what_cannot_be_is_said(
    healthy: duckdb.DuckDBPyConnection, table: str, column: str, value: float, said: str
) -> None:
    [message] = perturbed_messages(healthy, table, column, value)
    assert message.startswith(said)
