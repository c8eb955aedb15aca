"""What cannot be true becomes a warning."""

from __future__ import annotations

import duckdb

from paceline.core.schema import TABLES
from paceline.run.checks import check_run


def run_with(**rows: list[dict[str, object]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA raw")
    connection.execute("CREATE TABLE clock (rank BIGINT, clock_offset BIGINT)")
    for table in ("ranks", "collectives", "transfers", "steps"):
        columns = ", ".join(f'"{column.name}" {column.type}' for column in TABLES[table].columns)
        connection.execute(f"CREATE TABLE raw.{table} ({columns})")
        connection.execute(f"CREATE VIEW {table} AS FROM raw.{table}")
        for row in rows.get(table, []):
            names = ", ".join(f'"{name}"' for name in row)
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO raw.{table} ({names}) VALUES ({marks})", list(row.values()))
    return connection


def messages(connection: duckdb.DuckDBPyConnection) -> list[str]:
    return [warning.message for warning in check_run(connection, steps=True)]


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
