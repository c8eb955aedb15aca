"""Ranks without a recording lower the confidence in whatever is said of the run."""

from __future__ import annotations

import duckdb

from paceline.run.evidence.absent_ranks import absent_ranks


def gaps(recorded: list[int], named: list[int]) -> list[tuple[str, str]]:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE recordings (rank BIGINT)")
    connection.execute("CREATE TABLE ranks (rank BIGINT, format VARCHAR)")
    for rank in recorded:
        connection.execute("INSERT INTO recordings VALUES (?)", [rank])
    for rank in sorted({*recorded, *named}):
        connection.execute("INSERT INTO ranks VALUES (?, ?)", [rank, "msprof" if rank in recorded else None])
    return [(gap.kind, gap.message) for gap in absent_ranks(connection)]


def test_ranks_that_others_communicated_with() -> None:
    assert gaps([0, 1, 2], [3]) == [("missing", "rank 3 took part, but no recording of them was found")]


def test_a_hole_in_the_numbers() -> None:
    [(kind, message)] = gaps([0, 1, 3], [])
    assert kind == "missing" and message.startswith("no recording of rank 2 was found")


def test_ranks_that_were_chosen_are_no_hole() -> None:
    assert gaps([0, 8], []) == gaps([2, 3], []) == gaps([], []) == []
