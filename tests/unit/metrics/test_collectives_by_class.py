"""Collectives by class and one by one, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.metrics.communication.collectives import (
    collective_classes,
    rank_operators,
    with_derived,
)
from paceline.metrics.table import Table
from support.fake_run import FakeRun

MS = 1_000_000


def call(rank: int, op: str, duration: int, *, step: int | None = 1, sequence: int = 0, **more: Any) -> dict[str, Any]:
    times = {name: more.pop(name, part) * MS for name, part in (("transit", 2), ("wait", 1), ("sync", 1))}
    row = {"rank": rank, "step": step, "group": "g", "op": op, "name": f"{op}{sequence}", "sequence": sequence}
    return {**row, "duration": duration * MS, "bytes": 4_000_000, **times, **more}


GROUPS = [{"group": group, "kind": "dp", "rank": rank} for group in ("g", "h") for rank in (0, 1)]
RUN = FakeRun(
    groups=[*GROUPS, {"group": "h", "kind": "dp", "rank": 2}],
    collectives=[
        # all_reduce: rank 0 8 ms in step 1 and 4 ms twice in step 2, rank 1 6 ms in step 1.
        call(0, "all_reduce", 8, wait=5),
        call(1, "all_reduce", 6),
        call(0, "all_reduce", 4, step=2, sequence=1),
        call(0, "all_reduce", 4, step=2, sequence=2, group="h", bytes=1_000_000),
        call(0, "all_gather", 30, sequence=3, transit=5, wait=0, sync=3),
        call(1, "send", 3, sequence=4, group=None),
        call(1, "receive", 90, sequence=5, group=None, transit=0, bytes=0),
    ],
)


def as_rows(table: Table, *names: str) -> list[tuple[Any, ...]]:
    columns = [table.texts[name] if name in table.texts else table.numbers[name].tolist() for name in names]
    return list(zip(*columns, strict=True))


def test_classes_are_operators_in_kinds_of_groups_longest_first() -> None:
    found = collective_classes(RUN, "true")
    assert as_rows(found, "op", "kind", "groups", "ranks", "calls") == [
        ("receive", "", 0, 1, 1),
        ("all_gather", "dp", 1, 1, 1),
        ("all_reduce", "dp", 2, 2, 4),
        ("send", "", 0, 1, 1),
    ]
    # 22 ms of rank 0 in two steps and of rank 1 in one: three steps of a rank.
    reduce = {name: column[2] for name, column in found.numbers.items()}
    assert (reduce["size"], reduce["calls_per_step"], reduce["time"]) == (
        3,
        pytest.approx(4 / 3),
        pytest.approx(22 / 3),
    )
    assert reduce["waiting_share"] == pytest.approx(8 / 22)
    assert (reduce["wait"], reduce["transit"]) == (pytest.approx(8 / 3), pytest.approx(8 / 3))
    assert (reduce["bytes"], reduce["bytes_per_call"]) == (13_000_000, 3_250_000)
    assert reduce["bandwidth"] == pytest.approx(13 / 8)
    assert found.numbers["bandwidth"][0] != found.numbers["bandwidth"][0]  # nothing moved
    assert as_rows(collective_classes(RUN, "step = 2"), "op", "time") == [("all_reduce", 8)]


def test_operators_of_a_rank_by_name() -> None:
    select = f"{with_derived('group_kinds')} FROM ({rank_operators('step = 1 OR rank = 0')}) ORDER BY rank, op, name"
    found = RUN.sql(f"{select}")
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    assert [(row["rank"], row["name"], row["kind"], row["calls"], row["time"]) for row in rows] == [
        (0, "all_gather3", "dp", 1, 30),
        (0, "all_reduce0", "dp", 1, 8),
        (0, "all_reduce1", "dp", 1, 4),
        (0, "all_reduce2", "dp", 1, 4),
        (1, "all_reduce0", "dp", 1, 6),
        (1, "receive5", None, 1, 90),
        (1, "send4", None, 1, 3),
    ]
    assert [rows[1][name] for name in ("longest", "wait", "transit", "bytes", "bandwidth")] == [8, 5, 2, 4_000_000, 2]
    assert rows[5]["bandwidth"] is None
    twice = FakeRun(collectives=[call(0, "x", 4), call(0, "x", 6)])
    [row] = twice.sql(f"{with_derived('group_kinds')} {rank_operators('true')}").fetchall()
    assert row == (0, "x", None, "x0", 2, 10, 6, 2, 4, 8_000_000, 2)
